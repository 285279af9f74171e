#!/usr/bin/env python3
"""Measures `weft cluster up` beside `weft train` on a real graph, in pairs within one run.

Each pair trains the same epochs of the same edges: once in one process with two threads, once in a
cluster on this machine with two trainers of one thread each. Speeds are edges over the whole time
from the first grant to the last version, loading and storing included. With --tls it compares the
cluster in plain text with the same one over mutual TLS instead. The graph comes from WEFT_DATA_DIR.

  WEFT_DATA_DIR=~/data benchmarks/compare_cluster.py --pairs 3
  WEFT_DATA_DIR=~/data benchmarks/compare_cluster.py --pairs 3 --partitions 8 --tls
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts/lib"))
import peers  # noqa: E402


def prepare(folder, weft, partitions, epochs, dimension=100):
    config = {
        "entity_path": f"{folder}/entities", "edge_paths": [f"{folder}/train"],
        "checkpoint_path": f"{folder}/model",
        "entities": {"all": {"num_partitions": partitions}},
        "relations": [{"name": "all_edges", "lhs": "all", "rhs": "all", "operator": "none"}],
        "dimension": dimension, "comparator": "dot", "loss_fn": "softmax", "lr": 0.1,
        "num_epochs": epochs, "batch_size": 1000, "num_batch_negs": 50, "num_uniform_negs": 50,
        "eval_fraction": 0, "workers": 2,
    }
    path = peers.write_config(folder, config)
    peers.run([weft, "import", path, peers.find_data("cnr-2000") / "edges.txt", "--lhs-col", "0",
               "--rhs-col", "1"])
    return path


def run(command, report):
    """Runs to the end; gives what it wrote to `report`."""
    peers.run([*command, "--json", report])
    return json.loads(report.read_text())


def make_tls_flags(folder):
    script = pathlib.Path(__file__).resolve().parents[1] / "scripts/make_test_ca"
    peers.run([script, folder])
    return ["--tls-cert", folder / "cluster.crt", "--tls-key", folder / "cluster.key",
            "--tls-ca", folder / "ca.crt"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default="build/release/bin/weft")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--tls", action="store_true",
                        help="the cluster over TLS, against the same in plain text")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="weft-cluster-") as name:
        folder = pathlib.Path(name)
        config = prepare(folder, args.weft, args.partitions, args.epochs)
        tls = make_tls_flags(folder / "ca") if args.tls else []

        def train():
            peers.fresh(folder / "model")
            report = run([args.weft, "train", config], folder / "train.json")
            return report["trained_edges"] / report["seconds"]

        def cluster(store, flags):
            peers.fresh(folder / "model")
            report = run([args.weft, "cluster", "up", config, "--trainers", str(args.trainers),
                          "--threads", "1", "--store", store, *flags], folder / "cluster.json")
            return report["edges_per_second"]

        for store in ("memory", "rocksdb"):
            compared, measured = [], []
            for _ in range(args.pairs):
                compared.append(cluster(store, []) if args.tls else train())
                measured.append(cluster(store, tls))
            ratios = sorted(m / c for m, c in zip(measured, compared))
            what = ("over TLS", "in plain text") if args.tls else ("cluster", "one process")
            print(f"cnr-2000, {args.partitions} partitions, {store}: {what[0]} "
                  f"{statistics.median(measured):,.0f} edges/s, {what[1]} "
                  f"{statistics.median(compared):,.0f} edges/s; ratio "
                  f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
                  flush=True)


if __name__ == "__main__":
    main()
