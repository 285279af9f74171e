#!/usr/bin/env python3
"""Measures `weft train` on real graphs, and PyTorch-BigGraph beside it, in pairs within one run.

For each row of the table below: imports the graph with `weft import`, then trains it with both
programs in turn, from the same files with the same configuration, and prints edges/s, the loss per
edge of the first epoch, peak memory, and the ratios pair by pair. PBG's time is its own report of
the training proper, without loading and saving; Weft's is the same thing of its own.

The graphs come from WEFT_DATA_DIR (folders NAME, or NAME.tar.zst). PBG is optional: --pbg names a
checkout; it runs with the system's Python and needs torch, h5py, attrs, tqdm and OpenBLAS there.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

KNOWLEDGE_GRAPH = {
    "data": "FB15k-237", "file": "train.txt",
    "import": ["--lhs-col", "0", "--rel-col", "1", "--rhs-col", "2"],
    "config": {"dynamic_relations": True, "comparator": "dot", "loss_fn": "softmax"},
    "operator": "complex_diagonal",
}
WEB_GRAPH = {
    "data": "cnr-2000", "file": "edges.txt", "import": ["--lhs-col", "0", "--rhs-col", "1"],
    "config": {"dimension": 100, "num_batch_negs": 50, "num_uniform_negs": 50}, "operator": "none",
}


def row(base, **config):
    return {**base, "config": {**base["config"], **config}}


ROWS = {
    "cnr-2000 d=100 dot softmax 50+50": row(WEB_GRAPH, comparator="dot", loss_fn="softmax"),
    "cnr-2000 d=100 cos ranking 50+50": row(WEB_GRAPH, comparator="cos", loss_fn="ranking"),
    "FB15k-237 d=200 complex_diagonal 50+500": row(
        KNOWLEDGE_GRAPH, dimension=200, num_batch_negs=50, num_uniform_negs=500),
    "FB15k-237 d=400 complex_diagonal 50+1000": row(
        KNOWLEDGE_GRAPH, dimension=400, num_batch_negs=50, num_uniform_negs=1000),
}

RUN_PBG = """
import json, sys
from torchbiggraph.config import parse_config
from torchbiggraph.train import train
from torchbiggraph.util import SubprocessInitializer, setup_logging
if __name__ == "__main__":
    setup_logging()
    init = SubprocessInitializer()
    init.register(setup_logging, 0)
    train(parse_config(json.load(open(sys.argv[1]))), subprocess_init=init)
"""


def find_data(name):
    folder = os.environ.get("WEFT_DATA_DIR")
    if not folder:
        sys.exit("set WEFT_DATA_DIR to the folder with the graphs (NAME or NAME.tar.zst)")
    path = pathlib.Path(folder) / name
    if path.is_dir():
        return path
    archive = pathlib.Path(folder) / f"{name}.tar.zst"
    if not archive.exists():
        sys.exit(f"neither {path} nor {archive} is there")
    unpacked = pathlib.Path(tempfile.gettempdir()) / "weft-data"
    unpacked.mkdir(exist_ok=True)
    if not (unpacked / name).is_dir():
        subprocess.run(["tar", "--zstd", "-xf", archive, "-C", unpacked], check=True)
    return unpacked / name


def prepare(spec, folder, weft, threads):
    config = {
        "entity_path": f"{folder}/entities", "edge_paths": [f"{folder}/train"],
        "checkpoint_path": f"{folder}/model",
        "entities": {"all": {"num_partitions": 1}},
        "relations": [{"name": "all_edges", "lhs": "all", "rhs": "all",
                       "operator": spec["operator"]}],
        "global_emb": False, "lr": 0.1, "num_epochs": 1, "batch_size": 1000, "eval_fraction": 0,
        "workers": threads, **spec["config"],
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config, indent=2))
    subprocess.run([weft, "import", path, find_data(spec["data"]) / spec["file"], *spec["import"]],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


def run(command, env=None):
    """Runs to the end; gives its output and its peak memory in MB (the largest process)."""
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=env)
    output = done.stdout.read()
    _, status, usage = os.wait4(done.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{output[-3000:]}")
    return output, usage.ru_maxrss / 1024


def run_weft(config, weft):
    model = config.parent / "model"
    shutil.rmtree(model, ignore_errors=True)
    stats = config.parent / "stats.json"
    _, memory = run([weft, "train", config, "--json", stats])
    report = json.loads(stats.read_text())
    return {"speed": report["edges_per_second"], "loss": report["epochs"][0]["loss"],
            "memory": memory}


def blas_kernels():
    """Debian's OpenBLAS does not know newer processors: the best kernels that it has for this one."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    return "SKYLAKEX" if "avx512vl" in flags else "HASWELL" if "avx2" in flags else "NEHALEM"


def run_pbg(config, pbg, python):
    model = config.parent / "model"
    shutil.rmtree(model, ignore_errors=True)
    script = config.parent / "run_pbg.py"
    script.write_text(RUN_PBG)
    env = {**os.environ, "PYTHONPATH": str(pbg), "OPENBLAS_CORETYPE": blas_kernels(),
           "OMP_NUM_THREADS": "1"}
    output, memory = run([python, script, config], env)
    trained = re.findall(r"Trained (\d+) edges in ([\d.]+) s", output)
    edges = sum(int(e) for e, _ in trained)
    seconds = sum(float(s) for _, s in trained)
    lines = (model / "training_stats.json").read_text().splitlines()
    stats = [json.loads(line)["stats"] for line in lines if '"stats"' in line]
    loss = (sum(s["metrics"]["loss"] * s["count"] for s in stats) / sum(s["count"] for s in stats))
    return {"speed": edges / seconds, "loss": loss, "memory": memory}


def median(runs, key):
    return statistics.median(r[key] for r in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default="build/release/bin/weft")
    parser.add_argument("--pbg", help="a checkout of PyTorch-BigGraph to run beside it")
    parser.add_argument("--python", default="/usr/bin/python3", help="Python for PBG")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--json", help="write all figures to this file")
    args = parser.parse_args()
    if args.pbg:
        blas = os.path.realpath("/usr/lib/x86_64-linux-gnu/libblas.so.3")
        if "openblas" not in blas:
            sys.exit(f"PBG would run on {blas}: install libopenblas0-pthread for a fair peer")

    report = {}
    for name, spec in ROWS.items():
        if args.rows not in name:
            continue
        with tempfile.TemporaryDirectory(prefix="weft-compare-") as folder:
            config = prepare(spec, pathlib.Path(folder), args.weft, args.threads)
            weft, pbg = [], []
            for _ in range(args.pairs):
                weft.append(run_weft(config, args.weft))
                if args.pbg:
                    pbg.append(run_pbg(config, args.pbg, args.python))
        line = (f"{name}: weft {median(weft, 'speed'):,.0f} edges/s, "
                f"loss {median(weft, 'loss'):.3f}, {median(weft, 'memory'):,.0f} MB")
        report[name] = {"weft": weft, "pbg": pbg}
        if pbg:
            ratios = sorted(w["speed"] / p["speed"] for w, p in zip(weft, pbg))
            line += (f"; pbg {median(pbg, 'speed'):,.0f} edges/s, loss {median(pbg, 'loss'):.3f}; "
                     f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        print(line, flush=True)
    if not report:
        sys.exit(f"no row contains '{args.rows}'; there are: {', '.join(ROWS)}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
