#!/usr/bin/env python3
"""Prints what `weft` on one machine does with its time and memory.

  import      3 and 30 million generated edges over the same million entities: seconds, edges/s and
              peak memory of `weft import`, which must not grow with the edges
  evaluation  FB15k-237's test edges, dimension 400, both sides, filtered, all candidates: seconds
              of the whole `weft eval`
  memory      peak memory of `weft train` on the rows of compare_with_pbg.py, beside the tables with
              their optimizer state and the edges: what may come on top is 25 % of these + 300 MB
  start       milliseconds from the start of a command to the first byte that it prints

With --pbg also the import of the 3 million edges and the evaluation by PyTorch-BigGraph. The graphs
come from WEFT_DATA_DIR; the generated ones take 700 MB below TMPDIR.

  WEFT_DATA_DIR=~/data benchmarks/machine_figures.py [import evaluation memory start]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compare_with_pbg import ROWS, peers, prepare  # noqa: E402

ENTITIES, RELATIONS = 1_000_000, 10
TRIPLES = ["--lhs-col", "0", "--rel-col", "1", "--rhs-col", "2"]


def dynamic(folder, dimension=100, **changes):
    return peers.write_config(folder, {
        "entities": {"all": {"num_partitions": 1}},
        "relations": [{"name": "all_edges", "lhs": "all", "rhs": "all",
                       "operator": "complex_diagonal"}],
        "dynamic_relations": True, "dimension": dimension, "comparator": "dot",
        "loss_fn": "softmax", "global_emb": False, "lr": 0.1, "num_uniform_negs": 500,
        "eval_fraction": 0, "entity_path": f"{folder}/entities",
        "edge_paths": [f"{folder}/edges"], "checkpoint_path": f"{folder}/model", **changes})


def timed(command):
    begun = time.monotonic()
    _, memory = peers.run(command)
    return time.monotonic() - begun, memory


def imports(flags, pbg, folder):
    for millions in (3, 30):
        edges = folder / "edges.tsv"
        with open(edges, "wb") as out:
            subprocess.run([flags.weft.parent / "generate_edges", str(millions * 1_000_000),
                            str(ENTITIES), str(RELATIONS)], stdout=out, check=True)
        config = dynamic(folder)
        runs = [timed([flags.weft, "import", config, edges, *TRIPLES, "--force"])
                for _ in range(flags.repeats)]
        seconds = statistics.median(run[0] for run in runs)
        print(f"import, {millions} million edges over {ENTITIES:,} entities: {seconds:.2f} s, "
              f"{millions / seconds:.1f} million edges/s, {max(run[1] for run in runs):.0f} MB",
              flush=True)
        if pbg is not None and millions == 3:
            for path in ("entities", "edges"):
                peers.fresh(folder / path)
            begun = time.monotonic()
            _, memory = pbg.run("import", config, "0,1,2,-", edges)
            print(f"  pbg: {time.monotonic() - begun:.1f} s, {memory:.0f} MB", flush=True)
            for path in ("entities", "edges"):
                peers.fresh(folder / path)


def evaluation(flags, pbg, folder):
    data = peers.find_data("FB15k-237")
    names = ("train", "valid", "test")
    paths = [f"{folder}/{name}" for name in names]
    config = dynamic(folder, dimension=400, edge_paths=paths)
    peers.run([flags.weft, "import", config, *(data / f"{name}.txt" for name in names), *TRIPLES])
    config = dynamic(folder, dimension=400, edge_paths=paths[:1])
    peers.run([flags.weft, "train", config])
    command = [flags.weft, "eval", config, "--edges", paths[2], "--filter", paths[0], "--filter",
               paths[1], "--json", folder / "report.json"]
    seconds = statistics.median(timed(command)[0] for _ in range(flags.repeats))
    report = json.loads((folder / "report.json").read_text())
    print(f"evaluation, {report['protocol']['num_edges']:,} edges, dimension 400, all candidates, "
          f"both sides, filtered: {seconds:.2f} s", flush=True)
    if pbg is not None:
        begun = time.monotonic()
        pbg.evaluate(config, paths[2], paths)
        print(f"  pbg: {time.monotonic() - begun:.1f} s", flush=True)


def memory(flags, pbg, folder):
    for name, spec in ROWS.items():
        place = folder / name.replace(" ", "_")
        place.mkdir()
        config = prepare(spec, place, flags.weft, 2)
        _, peak = peers.run([flags.weft, "train", config])
        entities = int((place / "entities/entity_count_all_0.txt").read_text())
        edges = sum(epoch["edges"] for epoch in peers.stats_of(place / "model"))
        # A row is its vector and a sum; an edge two entities, with relations a third number.
        tables = entities * 4 * (spec["config"]["dimension"] + 1)
        held = (tables + edges * (12 if "--rel-col" in spec["import"] else 8)) / 2**20
        print(f"memory, {name}: {peak:.0f} MB; tables, optimizer state and edges {held:.0f} MB, "
              f"on top {peak - held:.0f} MB of {0.25 * held + 300:.0f}", flush=True)


def milliseconds_to_output(command, folder):
    begun = time.monotonic()
    with subprocess.Popen([str(word) for word in command], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as child:
        child.stdout.read(1)
        seconds = time.monotonic() - begun
        child.stdout.read()
    return 1000 * seconds


def start(flags, pbg, folder):
    (folder / "graph.tsv").write_text("".join(f"n{i}\tlikes\tn{i * 7 % 100}\n" for i in range(100)))
    weft = flags.weft
    for command in (["config", "init", "graph.tsv", "-o", "run.json"],
                    ["import", "run.json", "graph.tsv", *TRIPLES],
                    ["train", "run.json", "--set", "num_epochs=1"]):
        peers.run([weft, *command], folder)
    for command in (["--help"], ["train", "--help"], ["eval", "--help"],
                    ["config", "check", "run.json"],
                    ["import", "run.json", "graph.tsv", *TRIPLES],  # imported already
                    ["plan", "run.json"], ["neighbors", "run.json", "--entity", "n1"],
                    ["score", "run.json", "--lhs", "n1", "--rel", "likes"],
                    ["export", "run.json", "--to", "tsv", "-o", "exported"]):
        times = [milliseconds_to_output([weft, *command], folder) for _ in range(11)]
        print(f"start, weft {' '.join(command)}: {statistics.median(times):.0f} ms", flush=True)


FIGURES = {"import": imports, "evaluation": evaluation, "memory": memory, "start": start}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="default: all")
    parser.add_argument("--weft", type=pathlib.Path, default=peers.WEFT,
                        help="the program (default: the release build)")
    parser.add_argument("--repeats", type=int, default=3, help="medians of so many (default: 3)")
    parser.add_argument("--pbg", help="a checkout of PyTorch-BigGraph to run beside it")
    parser.add_argument("--python", default="/usr/bin/python3", help="Python for PBG")
    flags = parser.parse_args()
    unknown = sorted(set(flags.figures) - set(FIGURES))
    if unknown:
        parser.error(f"no such figure: {', '.join(unknown)}; there are: {', '.join(FIGURES)}")
    flags.weft = flags.weft.resolve()
    if not flags.weft.exists():
        sys.exit(f"{flags.weft} is not there: scripts/build release")
    pbg = peers.Pbg(flags.pbg, flags.python) if flags.pbg else None
    for figure in flags.figures or FIGURES:
        with tempfile.TemporaryDirectory(prefix="weft-figures-") as folder:
            FIGURES[figure](flags, pbg, pathlib.Path(folder))


if __name__ == "__main__":
    main()
