#!/usr/bin/env python3
"""Prints what a cluster on this machine does with its time and memory, on cnr-2000.

  waiting    the share of the trainers' time in which they wait for partitions and edges
  memory     what memory-backed partition servers take, against the versions that they keep
  recovery   seconds from the SIGKILL of a server, which is started again at once, until every
             trainer has begun another bucket
  requeue    seconds from the SIGKILL of a trainer until its buckets are free, beyond the lease

The graph comes from WEFT_DATA_DIR. Figures are taken from the processes' logs and metrics.

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
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compare_cluster import prepare  # noqa: E402

TRAINERS = ("trainer-0", "trainer-1")


class Cluster:
    """`weft cluster up`, with two trainers of one thread each."""

    def __init__(self, weft, config, folder, store, overrides=(), flags=()):
        self.folder = folder
        command = [weft, "cluster", "up", config, "--threads", "1", "--store", store,
                   "--data-dir", folder, *flags]
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

    def metrics_address(self, name):
        path = self.folder / "metrics" / name
        return path.read_text().strip() or None if path.exists() else None

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
            for _, found in cluster.lines(trainer, r"trainer ends: (.*)"):
                phases = {k: float(v) for k, v in re.findall(r"(\w+)_seconds=([\d.e-]+)", found[1])}
                total = sum(phases.values())
                shares = ", ".join(f"{k} {v / total:.1%}" for k, v in phases.items())
                print(f"waiting, 8 partitions, {store}, {trainer}: {shares} of {total:.1f} s",
                      flush=True)


def scrape(address):
    """The samples of a process' metrics, by name with labels."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as page:
        lines = page.read().decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
    return {name: float(value) for name, value in samples}


def memory(weft, folder):
    for dimension, epochs in ((100, 10), (400, 4)):
        memory_of(weft, folder / str(dimension), dimension, epochs)


def memory_of(weft, folder, dimension, epochs):
    """What must be kept is what the lock server names in its lists, and what trainers store."""
    folder.mkdir()
    config = prepare(folder, weft, partitions=8, epochs=epochs, dimension=dimension)
    cluster = Cluster(weft, config, folder / "memory", "memory")
    names = ("lock-server", "partition-server-0", "partition-server-1")
    addresses = [cluster.wait_for(lambda n=n: cluster.metrics_address(n)) for n in names]
    empty = sum(scrape(a)["process_resident_memory_bytes"] for a in addresses[1:])
    looks = []
    while cluster.process.poll() is None:
        try:
            lock, *servers = [scrape(a) for a in addresses]
        except OSError:
            break  # it ends
        blobs = [f'weft_partition_blob_bytes{{storage="memory",state="{s}"}}'
                 for s in ("whole", "uploading")]
        # Before there is a checkpoint little is kept, and the programs are most of it.
        if lock.get("weft_lock_checkpoint_version", 0) > 0:
            whole, stored = (sum(s[b] for s in servers) for b in blobs)
            looks.append((lock["weft_lock_kept_bytes"] + stored, whole + stored,
                          sum(s["process_resident_memory_bytes"] for s in servers)))
        time.sleep(0.1)
    cluster.finish()
    beyond = sorted((taken - kept) / kept for kept, _, taken in looks)
    kept, held, taken = (sorted(v) for v in zip(*looks))
    middle = len(looks) // 2
    print(f"memory, d={dimension}, both servers, {len(looks)} looks, median and most: to be kept "
          f"{kept[middle] / 1e6:.0f} and {kept[-1] / 1e6:.0f} MB, blobs {held[middle] / 1e6:.0f} "
          f"and {held[-1] / 1e6:.0f} MB, resident {taken[middle] / 1e6:.0f} and "
          f"{taken[-1] / 1e6:.0f} MB, of that the programs at their start {empty / 1e6:.0f} MB; "
          f"beyond what is kept {beyond[middle]:.1%} and {beyond[-1]:.1%}", flush=True)


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
            for at, _ in cluster.lines("lock-server", r"session ends: trainer=trainer-0 "):
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
