#!/usr/bin/env python3
"""Makes pbg_evaluation/: small models, edges, and the figures that PyTorch-BigGraph's evaluators
(commit 6fccd3f) give for them, against all entities; filtered for dynamic relations, as theirs can.

    PYTHONPATH=.../PyTorch-BigGraph python3 tests/golden/make_pbg_evaluation.py

Vectors and operators are random and seeded: equal scores have no say, and running this again changes
nothing but the bytes of HDF5.
"""

import json
import os
import pathlib
import random
import shutil
import tempfile

import attr
import h5py
import torch
from torchbiggraph.checkpoint_manager import CheckpointManager, ConfigMetadataProvider
from torchbiggraph.config import ConfigSchema
from torchbiggraph.eval import do_eval_and_report_stats
from torchbiggraph.filtered_eval import FilteredRankingEvaluator
from torchbiggraph.graph_storages import ENTITY_STORAGES, RELATION_TYPE_STORAGES
from torchbiggraph.model import make_model

HERE = pathlib.Path(__file__).resolve().parent
COMMON = dict(entity_path="entities", edge_paths=["train"], checkpoint_path="checkpoint", dimension=8,
              comparator="dot", loss_fn="softmax", eval_fraction=0.0, workers=1)
# (folder, entities of each type, relations, configuration)
RUNS = [
    ("dynamic", {"thing": 30}, 4, dict(
        COMMON, entities={"thing": {"num_partitions": 1}}, dynamic_relations=True, global_emb=False,
        relations=[{"name": "all", "lhs": "thing", "rhs": "thing",
                    "operator": "complex_diagonal"}])),
    ("static", {"user": 25, "item": 12}, 2, dict(
        COMMON, entities={"user": {"num_partitions": 1}, "item": {"num_partitions": 1}},
        relations=[{"name": "likes", "lhs": "user", "rhs": "item", "operator": "affine"},
                   {"name": "buys", "lhs": "user", "rhs": "item", "operator": "diagonal"}],
        comparator="cos")),
]


def write_edges(folder, edges):
    """PBG's own writer makes files of 200 MB."""
    pathlib.Path(folder).mkdir()
    with h5py.File(f"{folder}/edges_0_0.h5", "w") as file:
        file.attrs["format_version"] = 1
        for name, column in zip(("lhs", "rhs", "rel"), zip(*edges)):
            file.create_dataset(name, data=torch.tensor(column).numpy())


def write_model(config, counts):
    manager = CheckpointManager(config.checkpoint_path)
    manager.register_metadata_provider(ConfigMetadataProvider(config))
    manager.write_config(config)
    for name, count in counts.items():
        manager.write(name, 0, torch.randn(count, config.dimension), None)
    model = make_model(config)
    manager.write_model({k: torch.randn_like(v) for k, v in model.state_dict().items()}, None)
    manager.write_new_version(config, {}, {})
    manager.switch_to_new_version()


def evaluate(config, evaluator=None):
    *_, (_, _, stats) = do_eval_and_report_stats(config, evaluator=evaluator)
    return {name: stats.metrics[name] for name in ("pos_rank", "mrr", "r1", "r10", "r50")}


def make(folder, counts, num_relations, settings):
    config = ConfigSchema.from_dict(settings)
    entities = ENTITY_STORAGES.make_instance("entities")
    entities.prepare()
    for name, count in counts.items():
        entities.save_count(name, 0, count)
        entities.save_names(name, 0, [f"{name} {i}" for i in range(count)])
    relations = RELATION_TYPE_STORAGES.make_instance("entities")
    if config.dynamic_relations:
        relations.save_count(num_relations)
    relations.save_names([f"relation {i}" for i in range(num_relations)]
                         if config.dynamic_relations else [r.name for r in config.relations])
    lhs, rhs = (counts[t] for t in (config.relations[0].lhs, config.relations[0].rhs))
    edges = random.sample([(l, r, k) for l in range(lhs) for r in range(rhs)
                           for k in range(num_relations)], 200)
    write_edges("train", edges[:160])
    write_edges("test", edges[160:])
    write_model(config, counts)
    asked = attr.evolve(config, edge_paths=["test"], num_uniform_negs=0, relations=[
        attr.evolve(r, all_negs=True) for r in config.relations])
    expected = {"raw": evaluate(asked)}
    if config.dynamic_relations:
        expected["filtered"] = evaluate(asked, FilteredRankingEvaluator(asked, ["train", "test"]))
    pathlib.Path("expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main():
    random.seed(1)
    torch.manual_seed(1)
    for folder, counts, num_relations, settings in RUNS:
        out = HERE / "pbg_evaluation" / folder
        shutil.rmtree(out, ignore_errors=True)
        with tempfile.TemporaryDirectory() as scratch:
            os.chdir(scratch)
            make(folder, counts, num_relations, settings)
            shutil.copytree(scratch, out)
            os.chdir(HERE)


if __name__ == "__main__":
    main()
