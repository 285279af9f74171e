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
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts/lib"))
import peers  # noqa: E402

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
    path = peers.write_config(folder, config)
    peers.run([weft, "import", path, peers.find_data(spec["data"]) / spec["file"], *spec["import"]])
    return path


def run_weft(config, weft):
    peers.fresh(config.parent / "model")
    stats = config.parent / "stats.json"
    _, memory = peers.run([weft, "train", config, "--json", stats])
    report = json.loads(stats.read_text())
    return {"speed": report["edges_per_second"], "loss": report["epochs"][0]["loss"],
            "memory": memory}


def run_pbg(config, pbg):
    model = peers.fresh(config.parent / "model")
    seconds, memory = pbg.train(config)
    epoch = peers.stats_of(model)[0]
    return {"speed": epoch["edges"] / seconds, "loss": epoch["loss"], "memory": memory}


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
    peer = peers.Pbg(args.pbg, args.python) if args.pbg else None

    report = {}
    for name, spec in ROWS.items():
        if args.rows not in name:
            continue
        with tempfile.TemporaryDirectory(prefix="weft-compare-") as folder:
            config = prepare(spec, pathlib.Path(folder), args.weft, args.threads)
            weft, pbg = [], []
            for _ in range(args.pairs):
                weft.append(run_weft(config, args.weft))
                if peer is not None:
                    pbg.append(run_pbg(config, peer))
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
