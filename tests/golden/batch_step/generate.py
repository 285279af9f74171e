#!/usr/bin/env python3
"""Writes golden.json and featurized.json: what PyTorch-BigGraph computes for small batches.

    PYTHONPATH=PyTorch-BigGraph python3 generate.py > golden.json
    PYTHONPATH=PyTorch-BigGraph python3 generate.py featurized > featurized.json

made with PyTorch-BigGraph at commit 6fccd3f and torch 1.13. It runs PBG's own model, losses, trainer
and optimizers, with two changes from outside: everything is computed in double precision, so that the
numbers hold to all their digits, and the uniform negatives are given instead of drawn.

Every operator x {static, dynamic} x comparator x loss is there; bias, weights, kinds of negatives,
regularizer, global embedding, relation weight and shared tables vary from case to case. What PBG
cannot compute but means, max_norm and global embeddings with dynamic relations, is done by hand around
what it can: these cases say so (`by_hand`). The rest is left out: see README.md.
"""

import itertools
import json
import random
import sys

import torch
from torchbiggraph import model as pbg
from torchbiggraph.async_adagrad import AsyncAdagrad
from torchbiggraph.config import EntitySchema, RelationSchema
from torchbiggraph.edgelist import EdgeList
from torchbiggraph.entitylist import EntityList
from torchbiggraph.losses import LOSS_FUNCTIONS
from torchbiggraph.operators import instantiate_operator
from torchbiggraph.regularizers import N3Regularizer
from torchbiggraph.row_adagrad import RowAdagrad
from torchbiggraph.tensorlist import TensorList
from torchbiggraph.train_cpu import Trainer
from torchbiggraph.types import Side

DIMENSION = 4
ENTITIES = 5
EDGES = 4
CHUNK = 3  # two chunks, the second one padded
SAMPLES = 2  # a chunk and side
RELATIONS = 2
MARGIN = 13421773 / 2**27  # 0.1 in float32
LR = 0.1
RELATION_LR = 0.05
COEF = 0.25
OPERATORS = ["none", "translation", "diagonal", "linear", "affine", "complex_diagonal"]
COMPARATORS = ["dot", "cos", "l2", "squared_l2"]
LOSSES = ["ranking", "logistic", "softmax"]
MAX_NORM = 0.75
NEGATIVES = ["batch+uniform", "uniform", "batch", "all", "none on lhs", "none on rhs"]
# Of featurized sides: their entities cannot be listed.
FEATURIZED_NEGATIVES = ["batch+uniform", "batch", "none on lhs", "none on rhs"]

torch.set_default_dtype(torch.float64)
torch.Tensor.float = torch.Tensor.double  # PBG casts scores to float32
pbg.SimpleEmbedding.sample_entities = lambda self, *dims: self.get(self.samples.view(dims))


def draw(rng, *shape):
    """Multiples of 1/16 in [-1, 1]: short, and exact in float32."""
    numbers = [rng.randint(-16, 16) / 16 for _ in range(torch.Size(shape).numel())]
    return torch.tensor(numbers).view(shape)


def draw_bags(rng, without_empty=False):
    """A list of features an edge: some twice, and one list empty unless `without_empty`."""
    bags = [[rng.randrange(ENTITIES) for _ in range(rng.randint(1, 4))] for _ in range(EDGES)]
    bags[0] = [2, 4, 2]
    if not without_empty:
        bags[1] = []
    return bags


def entity_list(bags):
    offsets = torch.tensor([0] + list(itertools.accumulate(len(bag) for bag in bags)))
    return EntityList.from_tensor_list(
        TensorList(offsets, torch.tensor([f for bag in bags for f in bag], dtype=torch.long)))


def draw_inputs(rng, operator, dynamic):
    """What the cases of one operator share. Parameters move away from their initial values."""
    inputs = {
        "lhs_table": draw(rng, ENTITIES, DIMENSION),
        "rhs_table": draw(rng, ENTITIES, DIMENSION),
        "lhs_sums": draw(rng, ENTITIES).abs(),
        "rhs_sums": draw(rng, ENTITIES).abs(),
        "lhs": torch.tensor([rng.randrange(ENTITIES) for _ in range(EDGES)]),
        "rhs": torch.tensor([rng.randrange(ENTITIES) for _ in range(EDGES)]),
        "rel": torch.tensor([rng.randrange(RELATIONS) if dynamic else 1 for _ in range(EDGES)]),
        "weight": torch.tensor([rng.randint(1, 8) / 4 for _ in range(EDGES)]),
        "lhs_samples": torch.tensor([rng.randrange(ENTITIES) for _ in range(2 * EDGES * SAMPLES)]),
        "rhs_samples": torch.tensor([rng.randrange(ENTITIES) for _ in range(2 * EDGES * SAMPLES)]),
        "parameters": {},
    }
    for name, parameter in named_parameters(make_model(operator, dynamic, {}, global_emb=True)):
        inputs["parameters"][name] = {
            "values": parameter.data + draw(rng, *parameter.shape),
            "sums": draw(rng, *parameter.shape).abs(),
        }
    return inputs


def make_model(operator, dynamic, options, global_emb=False):
    shared = options.get("shared_table", False)
    featurized = options.get("featurized", "none")
    entities = {"user": EntitySchema(num_partitions=1, featurized=featurized in ("lhs", "both"))}
    if not shared:
        entities["item"] = EntitySchema(num_partitions=1, featurized=featurized in ("rhs", "both"))
    relation = dict(lhs="user", rhs="user" if shared else "item", operator=operator,
                    all_negs=options.get("negatives") == "all")
    weight = options.get("relation_weight", 1.0)
    if dynamic:
        relations = [RelationSchema(name="likes", weight=weight, **relation)]
    else:
        relations = [RelationSchema(name="knows", weight=7.0, **relation),
                     RelationSchema(name="likes", weight=weight, **relation)]
    operators = {
        side: [instantiate_operator(operator, side, RELATIONS if dynamic else 0, DIMENSION)
               for _ in relations] for side in (Side.LHS, Side.RHS)}
    comparator = pbg.COMPARATORS.get_class(options.get("comparator", "dot"))()
    if options.get("bias", False):
        comparator = pbg.BiasedComparator(comparator)
    negatives = options.get("negatives")
    return pbg.MultiRelationEmbedder(
        DIMENSION, relations, entities,
        num_batch_negs=0 if negatives == "uniform" else CHUNK,
        num_uniform_negs=0 if negatives == "batch" else SAMPLES,
        disable_lhs_negs=negatives == "none on lhs",
        disable_rhs_negs=negatives == "none on rhs",
        lhs_operators=operators[Side.LHS], rhs_operators=operators[Side.RHS],
        comparator=comparator,
        regularizer=N3Regularizer(COEF) if options.get("regularized", False) else None,
        global_emb=global_emb, num_dynamic_rels=RELATIONS if dynamic else 0)


def named_parameters(model):
    """(public name, parameter), without the embedding tables."""
    for name, parameter in model.named_parameters():
        kind, rest = name.split(".", 1)
        if kind == "global_embs":
            yield f"entities/{rest[len(model.EMB_PREFIX):]}/global_embedding", parameter
        elif kind in ("lhs_operators", "rhs_operators"):
            index, rest = rest.split(".", 1)
            yield f"relations/{index}/operator/{kind[:3]}/{rest}", parameter


def numbers(tensor):
    return [float(f"{x:.9g}") for x in tensor.detach().flatten().tolist()]


def digest(tensor):
    """One number in which every element has its share."""
    flat = tensor.detach().flatten()
    weights = torch.arange(flat.numel()) % 7 + 1
    return float(f"{float((flat * weights).sum()):.9g}")


def limit_norms(table, used):
    """The rows of a table that a batch gathers, as torch's embedding does before it does."""
    for row in used.unique().tolist():
        norm = table[row].norm()
        if norm > MAX_NORM:
            table[row] *= MAX_NORM / (norm + 1e-7)
    table.copy_(table.to(torch.float32).to(torch.float64))


def global_embeddings_by_hand(tables, inputs):
    """Adds them to whole tables, which is the same to scores and to the gradients of rows."""
    added = {}
    for table, name in zip(tables, ("user", "item")):
        name = f"entities/{name}/global_embedding"
        added[name] = torch.nn.Parameter(inputs["parameters"][name]["values"].clone())
        table.data += added[name].data
    return added


def run(operator, dynamic, options, inputs):
    by_hand = options.get("by_hand", "")
    model = make_model(operator, dynamic, options,
                       global_emb=options["global_emb"] and by_hand != "global_emb")
    optimizer = AsyncAdagrad(model.parameters(), lr=RELATION_LR) if list(model.parameters()) else None
    parameters = dict(named_parameters(model))
    for name, parameter in parameters.items():
        parameter.data.copy_(inputs["parameters"][name]["values"])
        optimizer.state[parameter]["sum"].copy_(inputs["parameters"][name]["sums"])

    lhs_table = torch.nn.Parameter(inputs["lhs_table"].clone())
    rhs_table = lhs_table if options["shared_table"] else torch.nn.Parameter(
        inputs["rhs_table"].clone())
    tables = [lhs_table] if options["shared_table"] else [lhs_table, rhs_table]
    if by_hand == "max_norm":
        used = [torch.cat([inputs[side], inputs[f"{side}_samples"][:-(-EDGES // CHUNK) * SAMPLES]])
                for side in ("lhs", "rhs")]
        for table, rows in zip(tables, [torch.cat(used)] if len(tables) == 1 else used):
            limit_norms(table.data, rows)
    if by_hand == "global_emb":
        globals_by_hand = global_embeddings_by_hand(tables, inputs)
    sums = [inputs["lhs_sums"], inputs["rhs_sums"]]
    table_optimizer = RowAdagrad(tables, lr=LR)
    for table, initial in zip(tables, sums):
        table_optimizer.state[table]["sum"].copy_(initial)
    model.set_embeddings("user", Side.LHS, lhs_table)
    model.set_embeddings("user" if options["shared_table"] else "item", Side.RHS, rhs_table)

    chunk = SAMPLES if options["negatives"] == "uniform" else CHUNK
    needed = -(-EDGES // chunk) * (0 if options["negatives"] == "batch" else SAMPLES)
    for embs, key in ((model.lhs_embs, "lhs_samples"), (model.rhs_embs, "rhs_samples")):
        for module in embs.values():
            module.samples = inputs[key][:needed]

    sides = {}
    for side in ("lhs", "rhs"):
        if options.get("featurized", "none") in (side, "both"):
            sides[side] = entity_list(options[f"{side}_bags"])
        else:
            sides[side] = EntityList.from_tensor(inputs[side])
    edges = EdgeList(sides["lhs"], sides["rhs"],
                     inputs["rel"] if dynamic else inputs["rel"][0],
                     inputs["weight"] if options["weighted"] else None)
    with torch.no_grad():
        scores, _ = model(edges)

    class NoOptimizer:
        def step(self, closure=None):
            pass

    loss = LOSS_FUNCTIONS.get_class(options["loss"])(margin=MARGIN)
    trainer = Trainer(NoOptimizer(), loss, [r.weight for r in model.relations])
    stats = trainer.process_one_batch(model, edges)

    if by_hand == "global_emb":
        for table, (name, parameter) in zip(tables, globals_by_hand.items()):
            table.data -= parameter.data
            parameter.grad = table.grad.to_dense().sum(0)
            parameters[name] = parameter
        optimizer = AsyncAdagrad(parameters.values(), lr=RELATION_LR)
        for name, parameter in parameters.items():
            optimizer.state[parameter]["sum"].copy_(inputs["parameters"][name]["sums"])

    result = dict(options)
    result.update({
        "loss_value": float(f"{stats.metrics['loss']:.9g}"),
        "reg_value": float(f"{stats.metrics['reg']:.9g}"),
        "lhs_pos": numbers(scores.lhs_pos),
        "rhs_pos": numbers(scores.rhs_pos),
        "lhs_neg": numbers(scores.lhs_neg),
        "rhs_neg": numbers(scores.rhs_neg),
        "gradients": {name: numbers(p.grad) for name, p in parameters.items() if p.grad is not None},
    })
    for side, table in zip(("lhs", "rhs"), tables):
        grad = table.grad.to_dense() if table.grad is not None else torch.zeros_like(table)
        result[f"{side}_gradient"] = numbers(grad)

    # One optimizer step: all numbers of some cases, a digest of each tensor of the others.
    shown = numbers if options["stepped"] else digest
    table_optimizer.step()
    if optimizer is not None:
        optimizer.step()
    for side, table in zip(("lhs", "rhs"), tables):
        result[f"{side}_table_after"] = shown(table)
        result[f"{side}_sums_after"] = shown(table_optimizer.state[table]["sum"])
    result["parameters_after"] = {
        name: {"values": shown(p), "sums": shown(optimizer.state[p]["sum"])}
        for name, p in parameters.items() if p.grad is not None}
    return result


def cases_by_hand(group, operator, dynamic, inputs):
    common = {
        "comparator": COMPARATORS[group % len(COMPARATORS)], "loss": LOSSES[group % len(LOSSES)],
        "bias": group % 4 == 3, "negatives": "batch+uniform", "weighted": group % 2 == 0,
        "relation_weight": 1.5, "regularized": False, "stepped": True}
    yield run(operator, dynamic, {
        **common, "by_hand": "max_norm", "max_norm": MAX_NORM, "shared_table": group % 3 == 0,
        "global_emb": not dynamic and group % 4 == 0}, inputs)
    if dynamic:
        yield run(operator, dynamic, {
            **common, "by_hand": "global_emb", "shared_table": False, "global_emb": True}, inputs)


def to_json(value):
    if isinstance(value, torch.Tensor):
        return value.flatten().tolist()
    return {k: to_json(v) for k, v in value.items()} if isinstance(value, dict) else value


def featurized_cases(rng, operator, dynamic, inputs):
    for i, comparator in enumerate(COMPARATORS):
        loss = LOSSES[rng.randrange(3)]
        featurized = ["lhs", "rhs", "both"][rng.randrange(3)]
        # Of a zero vector, PyTorch-BigGraph's cos is NaN, and so is the gradient of a complex modulus.
        without_empty = comparator == "cos" or operator == "complex_diagonal"
        bags = {f"{side}_bags": draw_bags(rng, without_empty) for side in ("lhs", "rhs")}
        yield run(operator, dynamic, {
            "comparator": comparator,
            "loss": loss,
            "featurized": featurized,
            "bias": rng.random() < 0.5,
            "negatives": FEATURIZED_NEGATIVES[rng.randrange(4)],
            "weighted": rng.random() < 0.5,
            "shared_table": featurized == "both" and rng.random() < 0.5,
            "relation_weight": rng.choice([1.0, 1.5]),
            "global_emb": not dynamic and rng.random() < 0.5,
            "regularized": operator not in ("linear", "affine") and rng.random() < 0.5,
            "stepped": i == 0,
            **bags,
        }, inputs)


def main():
    featurized = sys.argv[1:] == ["featurized"]
    rng = random.Random(21 if featurized else 20)
    groups = []
    for group, (operator, dynamic) in enumerate(itertools.product(OPERATORS, (False, True))):
        inputs = draw_inputs(rng, operator, dynamic)
        if featurized:
            groups.append({"operator": operator, "dynamic": dynamic, "inputs": to_json(inputs),
                           "cases": list(featurized_cases(rng, operator, dynamic, inputs))})
            continue
        cases = []
        for i, (comparator, loss) in enumerate(itertools.product(COMPARATORS, LOSSES)):
            cases.append(run(operator, dynamic, {
                "comparator": comparator,
                "loss": loss,
                "bias": rng.random() < 0.5,
                "negatives": NEGATIVES[(i + i // len(NEGATIVES)) % len(NEGATIVES)],
                "weighted": rng.random() < 0.5,
                "shared_table": rng.random() < 0.3,
                "relation_weight": rng.choice([1.0, 1.5]),
                "global_emb": not dynamic and rng.random() < 0.5,
                "regularized": operator not in ("linear", "affine") and rng.random() < 0.5,
                "stepped": i == 0,
            }, inputs))
        cases += cases_by_hand(group, operator, dynamic, inputs)
        groups.append({"operator": operator, "dynamic": dynamic, "inputs": to_json(inputs),
                       "cases": cases})
    golden = {
        "dimension": DIMENSION, "entities": ENTITIES, "relations": RELATIONS, "chunk": CHUNK,
        "samples": SAMPLES, "margin": MARGIN, "lr": LR, "relation_lr": RELATION_LR, "coef": COEF,
        "groups": groups,
    }
    text = json.dumps(golden, separators=(",", ":"))
    for long, short in (("-1000000000.0", "-1e9"), (".0,", ","), (".0]", "]")):
        text = text.replace(long, short)
    for start in ('{"operator"', '{"comparator"'):  # one case a line
        text = text.replace(start, "\n" + start)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
