#!/usr/bin/env python3
"""Prints what a cluster on this machine does with its time and memory, on cnr-2000.

  waiting    the share of the trainers' time in which they wait for partitions and edges
  memory     what memory-backed partition servers take, against the versions that they keep
  recovery   seconds from the SIGKILL of a server, which is started again at once, until every
             trainer has begun another bucket
  requeue    seconds from the SIGKILL of a trainer until its buckets are free, beyond the lease

The graph comes from WEFT_DATA_DIR. Figures are taken from the processes' logs and from /proc.

  WEFT_DATA_DIR=~/data benchmarks/cluster_figures.py [waiting memory recovery requeue]
"""

import argparse
import datetime
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compare_cluster import prepare  # noqa: E402

TRAINERS = ("trainer-0", "trainer-1")


class Cluster:
    """`weft cluster up`, with two trainers of one thread each."""

    def __init__(self, weft, config, folder, store, overrides=()):
        self.folder = folder
        command = [weft, "cluster", "up", config, "--threads", "1", "--store", store,
                   "--data-dir", folder]
        for override in overrides:
            command += ["--set", override]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

    def pid(self, name):
        """Of a process of the cluster; its working files or its name are in its command line."""
        me = self.process.pid
        children = pathlib.Path(f"/proc/{me}/task")
        for task in children.iterdir():
            for child in (task / "children").read_text().split():
                command = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().decode()
                if re.search(rf"[/\0]{name}\0", command + "\0"):
                    return int(child)
        return None

    def lines(self, name, pattern):
        """(time, match) of the lines of a log."""
        path = self.folder / "logs" / f"{name}.log"
        for line in path.read_text().splitlines() if path.exists() else ():
            found = re.search(pattern, line)
            if found:
                stamp = datetime.datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S.%f")
                yield stamp.timestamp(), found

    def begun_after(self, trainer, moment):
        """When the trainer began the first bucket that it began after the moment."""
        for at, found in self.lines(trainer, r"bucket trained: .* seconds=([\d.]+)"):
            begun = at - float(found[1])
            if begun > moment:
                return begun
        return None

    def wait_for(self, what, seconds=120):
        deadline = time.time() + seconds
        while time.time() < deadline:
            value = what()
            if value is not None:
                return value
            if self.process.poll() is not None:
                sys.exit(f"the cluster has ended; see {self.folder}/logs")
            time.sleep(0.05)
        sys.exit(f"nothing happened for {seconds} s; see {self.folder}/logs")

    def wait_until_all_train(self, moment):
        return max(self.wait_for(lambda: self.begun_after(t, moment)) for t in TRAINERS)

    def kill(self, name):
        pid = self.wait_for(lambda: self.pid(name))
        os.kill(pid, signal.SIGKILL)
        return time.time()

    def finish(self):
        if self.process.wait() != 0:
            sys.exit(f"the cluster failed; see {self.folder}/logs")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def waiting(weft, folder):
    config = prepare(folder, weft, partitions=8, epochs=10)
    for store in ("memory", "rocksdb"):
        cluster = Cluster(weft, config, folder / store, store)
        cluster.finish()
        shutil.rmtree(folder / "model")
        for trainer in TRAINERS:
            for _, found in cluster.lines(trainer, r"seconds by phase: (.*)"):
                phases = {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", found[1])}
                total = sum(phases.values())
                shares = ", ".join(f"{k} {v / total:.1%}" for k, v in phases.items())
                print(f"waiting, 8 partitions, {store}, {trainer}: {shares} of {total:.1f} s",
                      flush=True)


def resident(pid):
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024


def memory(weft, folder):
    config = prepare(folder, weft, partitions=8, epochs=10)
    entities = sum(int(p.read_text()) for p in (folder / "entities").glob("entity_count_all_*"))
    # The versions of the last manifest and the current ones, with a sum for each row.
    kept = 2 * entities * (100 + 1) * 4
    servers = ("partition-server-0", "partition-server-1")
    cluster = Cluster(weft, config, folder / "memory", "memory")
    pids = [cluster.wait_for(lambda s=s: cluster.pid(s)) for s in servers]
    cluster.wait_until_all_train(0)
    empty = sum(resident(p) for p in pids)
    taken = []
    while cluster.process.poll() is None:
        now = sum(resident(p) for p in pids)
        if now > 0:
            taken.append(now)
        time.sleep(0.1)
    cluster.finish()
    print(f"memory, both servers: at the first bucket {empty / 1e6:.0f} MB, median "
          f"{statistics.median(taken) / 1e6:.0f} MB, peak {max(taken) / 1e6:.0f} MB; two versions "
          f"of every partition are {kept / 1e6:.0f} MB", flush=True)


def recovery(weft, folder):
    config = prepare(folder, weft, partitions=8, epochs=1000)
    cluster = Cluster(weft, config, folder / "rocksdb", "rocksdb", ["commit_seconds=1"])
    cluster.wait_until_all_train(0)
    for role in ("lock-server", "partition-server-0", "param-server-0"):
        seconds = []
        for _ in range(5):
            killed = cluster.kill(role)
            seconds.append(cluster.wait_until_all_train(killed) - killed)
            cluster.wait_until_all_train(time.time() + 2)
        print(f"recovery, {role}: median {statistics.median(seconds):.2f} s, at most "
              f"{max(seconds):.2f} s of {len(seconds)}", flush=True)
    cluster.stop()


def requeue(weft, folder):
    lease = 5
    config = prepare(folder, weft, partitions=8, epochs=1000)
    cluster = Cluster(weft, config, folder / "rocksdb", "rocksdb", [f"lease_seconds={lease}"])
    seconds = []
    for _ in range(3):
        cluster.wait_until_all_train(time.time())
        killed = cluster.kill("trainer-0")

        def ended():
            for at, _ in cluster.lines("lock-server", r"session ends, .*: trainer=trainer-0"):
                if at > killed:
                    return at
            return None
        seconds.append(cluster.wait_for(ended) - killed - lease)
    print(f"requeue, lease of {lease} s: {', '.join(f'{s:+.2f}' for s in seconds)} s beyond it",
          flush=True)
    cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", nargs="*",
                        default=["waiting", "memory", "recovery", "requeue"])
    parser.add_argument("--weft", default="build/release/bin/weft")
    args = parser.parse_args()
    for name in args.figures:
        with tempfile.TemporaryDirectory(prefix="weft-cluster-") as folder:
            globals()[name](args.weft, pathlib.Path(folder))


if __name__ == "__main__":
    main()
