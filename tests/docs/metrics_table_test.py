#!/usr/bin/env python3
"""Holds docs/metrics.md to what the processes of a cluster export, and that to promtool.

Starts a cluster of all roles over a small graph, lets it train, scrapes every process over HTTP, and
compares names, types and labels with the table, both ways.

  metrics_table_test.py FOLDER_OF_PROGRAMS
"""

import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/metrics.md"
PROGRAMS = ["lock", "partition", "param", "trainer"]
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) ?\| ([\w, ]+) \| (.+) \|$")
SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Beyond these, labels come from small sets.
LARGE_LABELS = {"lhs", "rhs", "method"}
WITHIN_SECONDS = 120


def table():
    """name -> (type, labels, programs), of the page."""
    rows = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        found = ROW.match(line)
        if not found:
            continue
        name, kind, labels, programs, _ = found.groups()
        assert name not in rows, f"{name} is in the table twice"
        programs = PROGRAMS if programs == "all" else programs.split(", ")
        rows[name] = (kind, frozenset(filter(None, labels.strip().split(", "))), set(programs))
    assert len(rows) > 50, f"only {len(rows)} rows were found in {PAGE}"
    return rows


def scrape(address, path="/metrics"):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        return answer.read().decode()


def parse(text):
    """name -> (type, labels, {label: values}, {sample: value}) of a page of metrics."""
    types, families = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            types[name] = kind
            continue
        if line.startswith("#") or not line:
            continue
        sample, labels, value = SAMPLE.match(line).groups()
        name = sample
        for suffix in ("_bucket", "_sum", "_count"):
            base = sample.removesuffix(suffix)
            if base != sample and types.get(base) == "histogram":
                name = base
        pairs = dict(LABEL.findall(labels or ""))
        pairs.pop("le", None)
        family = families.setdefault(name, (types[name], set(), {}, {}))
        family[1].add(frozenset(pairs))
        for label, text_value in pairs.items():
            family[2].setdefault(label, set()).add(text_value)
        family[3][sample + json.dumps(pairs, sort_keys=True)] = float(value)
    return families


def total(families, name):
    return sum(families[name][3].values()) if name in families else 0


def compare(role, families, rows):
    problems = []
    expected = {name for name, row in rows.items() if role in row[2]}
    for name in sorted(expected - set(families)):
        problems.append(f"{role}: exports no {name}, but the table says so")
    for name in sorted(set(families) - expected):
        problems.append(f"{role}: exports {name}, of which the table says nothing")
    for name in sorted(set(families) & expected):
        kind, labels, values, _ = families[name]
        if kind != rows[name][0]:
            problems.append(f"{role}: {name} is a {kind}, in the table a {rows[name][0]}")
        if labels != {rows[name][1]}:
            problems.append(f"{role}: {name} has labels {sorted(map(sorted, labels))}, in the table "
                            f"{sorted(rows[name][1])}")
        for label, found in values.items():
            if label not in LARGE_LABELS and len(found) > 20:
                problems.append(f"{role}: {name} has {len(found)} values of {label}")
    return problems


def make_graph(folder, weft):
    """Two relations with parameters of their own, held-out edges, 2 x 2 buckets."""
    random.seed(5)
    lines = [f"e{random.randrange(400)}\tr{i % 2}\te{random.randrange(400)}\n" for i in range(20000)]
    (folder / "edges.tsv").write_text("".join(lines), encoding="utf-8")
    config = {
        "entities": {"thing": {"num_partitions": 2}},
        "relations": [{"name": name, "lhs": "thing", "rhs": "thing", "operator": "translation"}
                      for name in ("r0", "r1")],
        "dimension": 16, "num_epochs": 100000, "eval_fraction": 0.05, "verbose": 0,
        "entity_path": "entities", "edge_paths": ["edges"], "checkpoint_path": "model",
    }
    (folder / "run.json").write_text(json.dumps(config), encoding="utf-8")
    subprocess.run([weft, "import", "run.json", "edges.tsv", "--lhs-col", "0", "--rel-col", "1",
                    "--rhs-col", "2"], cwd=folder, check=True, capture_output=True)


def has_worked(role, families):
    """Enough has happened for every metric to be there."""
    ready = total(families, "weft_process_ready") == 1
    if role == "lock":
        return ready and total(families, "weft_lock_epoch") >= 2
    if role == "partition":
        return (ready and "weft_rpc_client_duration_seconds" in families and
                total(families, "weft_transfer_received_bytes_total") > 0)
    if role == "param":
        return (ready and "weft_rpc_client_duration_seconds" in families and
                total(families, "weft_param_pushes_total") > 0)
    return ready and total(families, "weft_trainer_trained_buckets_total") > 0


def targets(folder, cluster):
    """[(role, process, address)] once there is work in all of them."""
    path = folder / "model/.cluster/metrics.json"
    deadline = time.monotonic() + WITHIN_SECONDS
    missing = ["metrics.json"]
    while time.monotonic() < deadline and cluster.poll() is None:
        time.sleep(0.2)
        if not path.exists():
            continue
        found = [(group["labels"]["service"], group["labels"]["process"], group["targets"][0])
                 for group in json.loads(path.read_text(encoding="utf-8"))]
        missing = sorted(set(PROGRAMS) - {role for role, _, _ in found})
        for role, process, address in found:
            try:
                if not has_worked(role, parse(scrape(address))):
                    missing.append(process)
            except (urllib.error.URLError, ConnectionError):
                missing.append(process)
        if not missing and len(found) == 6:
            return found
    raise AssertionError(f"did not get going: {missing}")


def check_promtool(process, text):
    promtool = shutil.which("promtool")
    if promtool is None:
        raise AssertionError("promtool is missing: scripts/setup installs it")
    checked = subprocess.run([promtool, "check", "metrics"], input=text, text=True,
                             capture_output=True)
    said = checked.stdout + checked.stderr
    return [] if checked.returncode == 0 and not said else [f"{process}: promtool: {said}"]


def check_cluster(programs, folder):
    rows = table()
    weft = str(programs / "weft")
    make_graph(folder, weft)
    log = open(folder / "cluster.log", "w", encoding="utf-8")
    # Over TLS, which has metrics of its own.
    subprocess.run([ROOT / "scripts/make_test_ca", folder / "ca"], check=True, capture_output=True)
    cluster = subprocess.Popen([weft, "cluster", "up", "run.json", "--trainers", "2",
                                "--partition-servers", "2", "--threads", "1",
                                "--tls-cert", "ca/cluster.crt", "--tls-key", "ca/cluster.key",
                                "--tls-ca", "ca/ca.crt"],
                               cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    problems = []
    try:
        for role, process, address in targets(folder, cluster):
            text = scrape(address)
            problems += compare(role, parse(text), rows)
            problems += check_promtool(process, text)
            assert scrape(address, "/healthz") == "alive\n"
            assert scrape(address, "/readyz") == "ready\n"
    except BaseException:
        print((folder / "cluster.log").read_text(encoding="utf-8"))
        raise
    finally:
        cluster.send_signal(signal.SIGTERM)
        cluster.wait(timeout=60)
        log.close()
    return problems, len(rows)


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        problems, rows = check_cluster(programs, pathlib.Path(folder))
    print("\n".join(problems))
    print(f"metrics: {rows} in the table, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
