#!/usr/bin/env python3
"""Prints what strangers cost a cluster on this machine: those who reach its ports and are none of it.

  refused    processor time of each server for a malformed stream that it refuses, 100 of them a second
             while the run is paused, by kind, beyond what it takes in a quiet window beside them
  training   edges/s with 1,000 idle connections to each server and 100 malformed streams a second
             against each, as a share of that without, in pairs of windows; how many of the idle
             connections the servers had ended, which are opened again at once

With --tls all processes have certificates; strangers then speak plain text, or TLS without one. The strangers'
own processor time is taken from the same cores. The graph comes from WEFT_DATA_DIR.

  WEFT_DATA_DIR=~/data benchmarks/stranger_figures.py [--tls] [refused training]
"""

import argparse
import pathlib
import re
import resource
import selectors
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cluster_figures import Cluster  # noqa: E402
from compare_cluster import make_tls_flags, prepare  # noqa: E402

SERVERS = ("lock-server", "partition-server-0", "partition-server-1", "param-server-0")
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes.fromhex("000000040000000000")
STREAMS = {
    "HTTP/1": b"GET / HTTP/1.1\r\n\r\n",
    "noise": b"\xff" * 65536,
    "zeros": PREFACE + bytes(4096),
    "16 MB frame": PREFACE + SETTINGS + bytes.fromhex("ffffff000000000001"),
    "bad headers": PREFACE + SETTINGS + bytes.fromhex("000004010400000001ffffffff"),
    "empty window": PREFACE + SETTINGS + bytes.fromhex("00000408000000000000000000"),
    "lone continuation": PREFACE + SETTINGS + bytes.fromhex("000000090400000003"),
}
A_SECOND = 100
WINDOW = 10.0  # seconds
IDLE = 1000


def endpoint(folder, name):
    host, port = (folder / "addresses" / name).read_text().strip().rsplit(":", 1)
    return host, int(port)


def metrics(folder, name):
    address = (folder / "metrics" / name).read_text().strip()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return answer.read().decode()


def value(page, sample):
    return float(re.search(rf"^{re.escape(sample)} (\S+)$", page, re.M)[1])


def handshake_without_certificate(link):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with context.wrap_socket(link) as tls:
        tls.recv(1)  # the refusal


def send_malformed(address, kind):
    """One stream, until the server ends it."""
    with socket.create_connection(address, timeout=15) as link:
        try:
            if kind == "no certificate":
                handshake_without_certificate(link)
                return
            link.sendall(STREAMS[kind])
            link.shutdown(socket.SHUT_WR)
            while link.recv(65536):
                pass
        except OSError:
            pass  # refused before it had listened to all of it


class Nuisance(threading.Thread):
    """Goes on beside what is measured, from the beginning of a `with` to its end."""

    def __init__(self):
        super().__init__()
        self.ended = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


class Strangers(Nuisance):
    """Malformed streams at an even pace against some servers, while it lives."""

    def __init__(self, addresses, kinds, a_second=A_SECOND):
        super().__init__()
        self.targets = [(address, kind) for kind in kinds for address in addresses]
        self.pace = 1 / (a_second * len(addresses))
        self.sent = 0

    def run(self):
        due = time.monotonic()
        while not self.ended.is_set():
            send_malformed(*self.targets[self.sent % len(self.targets)])
            self.sent += 1
            due += self.pace
            time.sleep(max(0, due - time.monotonic()))


class IdleConnections(Nuisance):
    """So many connections to each address; half of them say nothing, half begin HTTP/2."""

    def __init__(self, addresses):
        super().__init__()
        self.selector = selectors.DefaultSelector()
        self.reopened = 0
        for i in range(IDLE):
            for address in addresses:
                self.open(address, i % 2 == 0)

    def open(self, address, speaks):
        link = socket.create_connection(address)
        if speaks:
            link.sendall(PREFACE + SETTINGS)
        self.selector.register(link, selectors.EVENT_READ, (address, speaks))

    def run(self):
        while not self.ended.is_set():
            for key, _ in self.selector.select(timeout=0.2):
                try:
                    there = key.fileobj.recv(65536)
                except OSError:
                    there = b""
                if there:
                    continue
                self.selector.unregister(key.fileobj)
                key.fileobj.close()
                self.reopened += 1
                self.open(*key.data)

    def __exit__(self, *_):
        super().__exit__()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()


def cpu_seconds(folder, server):
    return value(metrics(folder, server), "process_cpu_seconds_total")


def set_paused(weft, folder, paused, tls):
    lock = ":".join(map(str, endpoint(folder, "lock-server")))
    subprocess.run([weft, "cluster", "pause" if paused else "resume", lock, *tls], check=True,
                   stdout=subprocess.DEVNULL)
    phase = "paused" if paused else "running"
    while value(metrics(folder, "lock-server"), f'weft_lock_run_phase{{phase="{phase}"}}') != 1:
        time.sleep(0.1)


def refused(weft, cluster, kinds, tls):
    set_paused(weft, cluster.folder, True, tls)
    time.sleep(5)  # what is stored in the background
    for server in SERVERS:
        address = endpoint(cluster.folder, server)
        costs = {}
        begin = cpu_seconds(cluster.folder, server)
        time.sleep(WINDOW)
        quiet = (cpu_seconds(cluster.folder, server) - begin) / WINDOW
        for kind in kinds:
            begin, at = cpu_seconds(cluster.folder, server), time.monotonic()
            with Strangers([address], [kind]) as strangers:
                time.sleep(WINDOW / 2)
            loud = cpu_seconds(cluster.folder, server) - begin
            costs[kind] = 1e3 * (loud - quiet * (time.monotonic() - at)) / strangers.sent
        each = ", ".join(f"{kind} {cost:.2f}" for kind, cost in costs.items())
        print(f"refused, {server}: ms of processor time a stream: {each}", flush=True)
    set_paused(weft, cluster.folder, False, tls)


def training(cluster, kinds):
    addresses = [endpoint(cluster.folder, server) for server in SERVERS]

    def edges():
        return value(metrics(cluster.folder, "lock-server"),
                     'weft_lock_committed_edges_total{kind="trained"}')

    def window():
        begin, at = edges(), time.monotonic()
        time.sleep(2 * WINDOW)
        return (edges() - begin) / (time.monotonic() - at)

    shares, reopened, own = [], 0, 0.0
    for _ in range(3):
        alone = window()
        used = time.process_time()
        with IdleConnections(addresses) as idle, Strangers(addresses, kinds) as strangers:
            among = window()
        own += time.process_time() - used
        reopened += idle.reopened
        shares.append(among / alone)
        print(f"training: {alone:,.0f} edges/s; with {IDLE} idle connections to each of "
              f"{len(addresses)} servers and {strangers.sent / (2 * WINDOW):.0f} malformed streams a "
              f"second {among:,.0f}", flush=True)
    print(f"training: {statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f}) of the "
          f"speed; {reopened} idle connections were ended; the strangers took "
          f"{own / (6 * WINDOW):.2f} cores", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", nargs="*", default=["refused", "training"])
    parser.add_argument("--weft", default="build/release/bin/weft")
    parser.add_argument("--tls", action="store_true")
    args = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    kinds = ["HTTP/1", "noise", "no certificate"] if args.tls else list(STREAMS)
    with tempfile.TemporaryDirectory(prefix="weft-strangers-") as name:
        folder = pathlib.Path(name)
        config = prepare(folder, args.weft, partitions=8, epochs=100_000)
        tls = make_tls_flags(folder / "ca") if args.tls else []
        cluster = Cluster(args.weft, config, folder / "cluster", "memory", ["commit_seconds=1"], tls)
        try:
            cluster.wait_until_all_train(0)
            if "refused" in args.figures:
                refused(args.weft, cluster, kinds, tls)
            if "training" in args.figures:
                training(cluster, kinds)
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
