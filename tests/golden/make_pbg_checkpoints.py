#!/usr/bin/env python3
"""Makes the checkpoints in pbg_*/, by training PyTorch-BigGraph (commit 6fccd3f) on a few edges.

    PYTHONPATH=.../PyTorch-BigGraph python3 tests/golden/make_pbg_checkpoints.py

Each folder holds what PBG wrote, and expected.json: the same values as PBG itself reads them, with
the optimizer's state by the name of the parameter that it belongs to. Training is not reproducible
(PBG has no seed), so running this again changes every value.
"""

import json
import os
import pathlib
import random
import shutil
import tempfile

import torch
from torchbiggraph.checkpoint_manager import CheckpointManager, model_state_dict_private_to_public
from torchbiggraph.config import ConfigSchema
from torchbiggraph.edgelist import EdgeList
from torchbiggraph.entitylist import EntityList
from torchbiggraph.graph_storages import EDGE_STORAGES, ENTITY_STORAGES, RELATION_TYPE_STORAGES
from torchbiggraph.model import make_model
from torchbiggraph.train import train

HERE = pathlib.Path(__file__).resolve().parent
OPERATORS = ["none", "translation", "diagonal", "linear", "affine", "complex_diagonal"]

COMMON = dict(
    entity_path="entities", edge_paths=["edges"], checkpoint_path="checkpoint",
    dimension=4, num_epochs=2, lr=0.1, relation_lr=0.05, comparator="dot", loss_fn="softmax",
    init_scale=0.1, num_uniform_negs=5, num_batch_negs=5, batch_size=10, eval_fraction=0.0,
    workers=1, verbose=0,
)

# (folder, entity counts by partition, configuration)
RUNS = [
    ("pbg_static", {"user": [4, 3], "item": [5]}, dict(
        COMMON,
        entities={"user": {"num_partitions": 2}, "item": {"num_partitions": 1}},
        relations=[{"name": f"r_{op}", "lhs": "user", "rhs": "item", "operator": op}
                   for op in OPERATORS],
        global_emb=True,
    )),
    ("pbg_dynamic_affine", {"thing": [6]}, dict(
        COMMON,
        entities={"thing": {"num_partitions": 1}},
        relations=[{"name": "all", "lhs": "thing", "rhs": "thing", "operator": "affine"}],
        dynamic_relations=True, global_emb=False,
    )),
    ("pbg_dynamic_complex", {"thing": [6]}, dict(
        COMMON,
        entities={"thing": {"num_partitions": 1}},
        relations=[{"name": "all", "lhs": "thing", "rhs": "thing",
                    "operator": "complex_diagonal"}],
        dynamic_relations=True, global_emb=False,
    )),
    ("pbg_no_parameters", {"thing": [6]}, dict(
        COMMON,
        entities={"thing": {"num_partitions": 1}},
        relations=[{"name": "all", "lhs": "thing", "rhs": "thing", "operator": "none"}],
        global_emb=False,
    )),
]
NUM_DYNAMIC_RELATIONS = 3


def write_data(counts, config):
    entities = ENTITY_STORAGES.make_instance(config.entity_path)
    entities.prepare()
    for entity_type, of_type in counts.items():
        for part, count in enumerate(of_type):
            entities.save_count(entity_type, part, count)
            entities.save_names(entity_type, part,
                                [f"{entity_type} {part}.{i}" for i in range(count)])
    relations = RELATION_TYPE_STORAGES.make_instance(config.entity_path)
    if config.dynamic_relations:
        relations.save_count(NUM_DYNAMIC_RELATIONS)
        relations.save_names([f"relation {i}" for i in range(NUM_DYNAMIC_RELATIONS)])
        num_relations = NUM_DYNAMIC_RELATIONS
    else:
        relations.save_names([r.name for r in config.relations])
        num_relations = len(config.relations)
    lhs_counts = counts[config.relations[0].lhs]
    rhs_counts = counts[config.relations[0].rhs]
    edges = EDGE_STORAGES.make_instance(config.edge_paths[0])
    edges.prepare()
    for lhs, lhs_count in enumerate(lhs_counts):
        for rhs, rhs_count in enumerate(rhs_counts):
            triples = [(random.randrange(lhs_count), random.randrange(rhs_count), rel)
                       for rel in range(num_relations) for _ in range(8)]
            columns = [torch.tensor(c) for c in zip(*triples)]
            edges.save_edges(lhs, rhs, EdgeList(EntityList.from_tensor(columns[0]),
                                                EntityList.from_tensor(columns[1]), columns[2]))


def read_back(counts, config):
    """What PBG reads from its checkpoint, as JSON."""
    manager = CheckpointManager(config.checkpoint_path)
    expected = {"version": manager.checkpoint_version, "embeddings": {}, "model": {}}
    for entity_type, of_type in counts.items():
        for part in range(len(of_type)):
            embeddings, state = manager.read(entity_type, part)
            expected["embeddings"][f"{entity_type}_{part}"] = {
                "values": embeddings.tolist(), "sums": state["state"][0]["sum"].tolist()}
    values, state = manager.read_model()
    model = make_model(config)
    model.load_state_dict(values)
    names = [name for name, _ in model.named_parameters()]
    public = {private.private_name: name
              for name, private in model_state_dict_private_to_public(values).items()}
    for index, private in enumerate(names):
        entry = state["state"][index]
        expected["model"][public[private]] = {
            "shape": list(values[private].shape), "values": values[private].flatten().tolist(),
            "sums": entry["sum"].flatten().tolist(), "steps": float(entry["step"])}
    return expected


def main():
    for folder, counts, settings in RUNS:
        out = HERE / folder
        shutil.rmtree(out, ignore_errors=True)
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)
            config = ConfigSchema.from_dict(settings)
            write_data(counts, config)
            train(config)
            expected = read_back(counts, config)
            shutil.copytree("entities", out / "entities")
            shutil.copytree("checkpoint", out / "checkpoint")
            os.chdir(HERE)
        (out / "expected.json").write_text(json.dumps(expected) + "\n")
        print(out.name, sum(f.stat().st_size for f in out.rglob("*") if f.is_file()), "bytes")


if __name__ == "__main__":
    main()
