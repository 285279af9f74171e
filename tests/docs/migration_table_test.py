#!/usr/bin/env python3
"""Holds docs/migrating-from-pbg.md: every row to a test that exists, and every key, command, file and
attribute of PyTorch-BigGraph, and every key of the schema, to a row.

Reads sources only: CMakeLists.txt for the binaries and their files, these for the tests in them.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/migrating-from-pbg.md"
SCHEMA = ROOT / "proto/weft/v1/run_config.proto"
STATES = ["same", "better", "ignored", "refused"]

# PyTorch-BigGraph at commit 6fccd3f, by hand.
PBG = """
entities entities.NAME entities.NAME.num_partitions entities.NAME.featurized entities.NAME.dimension
relations relations[i].name relations[i].lhs relations[i].rhs relations[i].weight
relations[i].operator relations[i].all_negs
dimension init_scale max_norm global_emb comparator bias loss_fn margin regularization_coef
regularizer entity_path edge_paths checkpoint_path init_path checkpoint_preservation_interval
num_epochs num_edge_chunks max_edges_per_chunk bucket_order workers batch_size num_batch_negs
num_uniform_negs disable_lhs_negs disable_rhs_negs lr relation_lr eval_fraction eval_num_batch_negs
eval_num_uniform_negs background_io verbose hogwild_delay dynamic_relations num_machines
num_partition_servers distributed_init_method distributed_tree_init_order num_gpus
num_groups_for_partition_server num_groups_per_sharded_partition_server partition_shard_size
half_precision
config.json get_torchbiggraph_config
torchbiggraph_import_from_tsv torchbiggraph_import_from_parquet torchbiggraph_train torchbiggraph_eval
torchbiggraph_export_to_tsv torchbiggraph_partitionserver torchbiggraph_config
torchbiggraph_example_fb15k torchbiggraph_example_livejournal torchbiggraph.filtered_eval
torchbiggraph.model.OPERATORS torchbiggraph.model.COMPARATORS torchbiggraph.losses.LOSS_FUNCTIONS
-p --param --rank -l --lhs-col -r --rhs-col --rel-col --weight-col --relation-type-min-count
--entity-min-count --entities-output --relation-types-output
entity_count_TYPE_PART.txt entity_names_TYPE_PART.json dynamic_rel_count.txt dynamic_rel_names.json
edges_LHS_RHS.h5 lhs rhs rel weight lhsd_offsets lhsd_data rhsd_offsets rhsd_data
checkpoint_version.txt embeddings_TYPE_PART.vN.h5 model.vN.h5 training_stats.json epoch_N/ init_path/
embeddings optimizer/state_dict model/relations/R/operator/SIDE/PARAMETER
model/entities/TYPE/global_embedding state_dict_key format_version config/json
iteration/num_epochs iteration/epoch_idx iteration/num_edge_paths iteration/edge_path_idx
iteration/edge_path iteration/num_edge_chunks iteration/edge_chunk_idx
""".split()

# How the keys of a message are written in the page.
PREFIXES = {"RunConfig": "", "EntityConfig": "entities.NAME.", "RelationConfig": "relations[i].",
            "EarlyStopping": "early_stopping.", "ParamSync": "param_sync."}


def schema_keys(text):
    """The keys of the messages of run_config.proto, as the page writes them."""
    keys = []
    for message, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", text, re.M | re.S):
        if message == "Rule":
            continue
        for field in re.findall(r"^  (?:optional|repeated) [\w.]+ (\w+) = \d+", body, re.M):
            if (message, field) != ("EntityConfig", "name"):  # the key of the object
                keys.append(PREFIXES[message] + field)
    return keys


def tests_of_tree():
    """{binary: {Suite.Case}} of every weft_test, and {name: {}} of every other ctest entry."""
    tests = {}
    for cmake in [*ROOT.glob("tests/**/CMakeLists.txt"), *ROOT.glob("examples/**/CMakeLists.txt")]:
        text = re.sub(r"#.*", "", cmake.read_text())
        for name in re.findall(r"add_test\(\s*NAME (\w+)", text):
            tests[name] = set()
        for name, sources in re.findall(r"weft_test\(\s*(\w+)\s+SRCS\s+((?:[\w./$+{}-]+\.cc\s+)+)", text):
            cases = set()
            for source in sources.split():
                code = (cmake.parent / source).read_text() if "$" not in source else ""
                cases.update(f"{suite}.{case}" for suite, case in
                             re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", code, re.M))
            tests[name] = cases
    return tests


def rows_of(page):
    """(line number, names, state, tests) of every row of a table."""
    for number, line in enumerate(page.splitlines(), start=1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| `") or len(cells) < 2:
            continue
        yield (number, re.findall(r"`([^`]+)`", cells[0]), cells[1],
               [t.strip() for t in cells[-1].split(",") if t.strip()] if len(cells) == 4 else None)


def problems(page, needed, known, tests):
    seen = set()
    for number, names, state, held_by in rows_of(page):
        def tell(what):
            return f"{PAGE.name}:{number}: {', '.join(names)}: {what}"
        if held_by is None:
            yield tell("a row has four cells")
            continue
        if state not in STATES:
            yield tell(f"is '{state}', must be one of {', '.join(STATES)}")
        for name in names:
            if name in seen:
                yield tell(f"{name} has a row already")
            if name not in known:
                yield tell(f"{name} is neither PBG's nor a key of the schema")
            seen.add(name)
        if not held_by:
            yield tell("no test holds this row")
        for test in held_by:
            binary, _, case = test.partition(": ")
            if binary not in tests:
                yield tell(f"there is no test {binary}")
            elif case not in tests[binary] and (case or tests[binary]):
                yield tell(f"{binary} has no case '{case}'")
    for name in needed:
        if name not in seen:
            yield f"{PAGE.name}: {name} has no row"


def self_test():
    tests = {"a_test": {"A.B"}, "script": set()}
    good = "| `x` | same | | a_test: A.B |\n| `y` | same | | script |\n"
    assert not list(problems(good, ["x", "y"], ["x", "y"], tests))
    for bad in ("| `x` | same | | a_test: A.C |", "| `x` | same | | b_test: A.B |",
                "| `x` | same | | |", "| `x` | refused | | |", "| `x` | fine | | a_test: A.B |", "| `x` | same | script |",
                "| `w` | same | | script |", "| `x` | same | | a_test |",
                "| `x` | same | | script |\n| `x` | same | | script |", ""):
        assert list(problems(bad, ["x"], ["x"], tests)), bad


def main():
    self_test()
    tests = tests_of_tree()
    keys = schema_keys(SCHEMA.read_text())
    needed = list(dict.fromkeys([*PBG, *keys]))
    found = list(problems(PAGE.read_text(), needed, set(needed), tests))
    print("\n".join(found))
    print(f"{PAGE.name}: {len(needed)} things, {len(keys)} keys of the schema, {len(found)} problems")
    sys.exit(1 if found or len(keys) < 50 or len(tests) < 40 else 0)


if __name__ == "__main__":
    main()
