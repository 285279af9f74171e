#!/usr/bin/env python3
"""Holds Prometheus' rules and Grafana's dashboards against the table of metrics, promtool and the runbook; then
breaks copies of them and sees that each fault is found.

  tests/deploy/monitoring_test.py
"""

import copy
import json
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tempfile

import yaml

from promql import Catalogue
from render import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMETHEUS, GRAFANA = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana"
RULE_FILES = sorted((PROMETHEUS / "rules").glob("*.yaml"))
TABLE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
RUNBOOK = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def rules_of(documents):
    return [rule for document in documents for group in document["groups"] for rule in group["rules"]]


def check_rules(documents, tests, table=TABLE, runbook=RUNBOOK):
    rules = rules_of(documents)
    catalogue = Catalogue(table, rules)
    headings = set(re.findall(r"^### (\w+)$", runbook, re.M))
    alerts = [rule for rule in rules if "alert" in rule]
    tested = {(entry["alertname"], bool(entry.get("exp_alerts"))) for test in tests["tests"]
              for entry in test.get("alert_rule_test", [])}
    for rule in rules:
        name = rule.get("alert") or rule["record"]
        yield from (f"{name}: {problem}" for problem in catalogue.problems(rule["expr"]))
    for rule in alerts:
        name = rule["alert"]
        if name not in headings:
            yield f"{name}: has no entry in docs/operations.md"
        if rule["annotations"].get("runbook") != f"docs/operations.md#{name.lower()}":
            yield f"{name}: points to another entry of the runbook"
        if rule["labels"].get("severity") not in ("warning", "critical"):
            yield f"{name}: has no severity"
        if (name, True) not in tested:
            yield f"{name}: no test sees it fire"
    for heading in {h for h in headings if h.startswith("Weft")} - {rule["alert"] for rule in alerts}:
        yield f"docs/operations.md: there is no alert {heading}"


def all_panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def check_dashboard(name, dashboard, catalogue, uids):
    panels = dashboard["panels"]
    if len({panel["id"] for panel in panels}) != len(panels):
        yield f"{name}: two panels have one id"
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    text = json.dumps(panels)
    for used in set(re.findall(r"\$\{?(\w+)", text)) - variables - {"__rate_interval", "__url_time_range",
                                                                     "__field"}:
        yield f"{name}: there is no variable {used}"
    for uid in re.findall(r"/d/([\w-]+)", json.dumps(dashboard)):
        if uid not in uids:
            yield f"{name}: links to {uid}, which is no dashboard"
    for variable in dashboard["templating"]["list"]:
        if variable["type"] != "query":
            continue
        query = variable["query"]["query"]
        found = re.fullmatch(r"label_values\((\w+(?:\{.*\})?), (\w+)\)", query)
        if not found or found[2] not in catalogue.TARGET_LABELS:
            yield f"{name}: variable {variable['name']}: {query}?"
            continue
        yield from (f"{name}: variable {variable['name']}: {p}" for p in catalogue.problems(found[1]))
    places = set()
    for panel in all_panels(dashboard):
        where = f"{name}: {panel['title']}"
        if len(panel.get("description", "")) < 10:
            yield f"{where}: has no description"
        grid = panel["gridPos"]
        cells = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"])
                 for y in range(grid["y"], grid["y"] + grid["h"])}
        if cells & places or grid["x"] + grid["w"] > 24:
            yield f"{where}: lies over another panel, or beyond the edge"
        places |= cells
        for target in panel["targets"]:
            yield from (f"{where}: {problem}" for problem in catalogue.problems(target["expr"]))


def check_dashboards(dashboards, catalogue):
    uids = {dashboard["uid"] for dashboard in dashboards.values()}
    for name, dashboard in dashboards.items():
        yield from check_dashboard(name, dashboard, catalogue, uids)


def expressions(dashboards):
    """Every expression, as it is when Grafana has put its variables in."""
    for name, dashboard in dashboards.items():
        for panel in all_panels(dashboard):
            for target in panel["targets"]:
                expr = target["expr"].replace("$__rate_interval", "1m")
                yield f"{name}: {panel['title']}", expr.replace("$trainer", ".*").replace("$run", "a")


def promtool(*arguments):
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)
    return None if done.returncode == 0 else f"promtool {arguments[0]}: {done.stdout}{done.stderr}"


def check_failed_calls(dashboards):
    """What the panel shows: refusals, and 0 where callers only ended calls of their own."""
    [expr] = [expr for where, expr in expressions({"weft-cluster.json": dashboards["weft-cluster.json"]})
              if where.endswith(": Calls that failed")]
    shown = {("StoreSync", "CANCELLED"): 0, ("Register", "UNAVAILABLE"): 2}  # calls a second
    series = [{"series": f'weft_rpc_server_duration_seconds_count{{run="a", method="{method}", code="{code}"}}',
               "values": "0+120x10"} for method, code in shown]
    samples = [{"labels": f'{{method="{method}"}}', "value": rate} for (method, _), rate in shown.items()]
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [
        {"expr": expr.replace("[1m]", "[5m]"), "eval_time": "10m", "exp_samples": samples}]}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "panel.yaml")
        path.write_text(yaml.safe_dump({"tests": [test]}))
        return promtool("test", "rules", path)


def check_with_promtool(dashboards):
    yield promtool("check", "rules", "--lint=all", "--lint-fatal", *RULE_FILES)
    yield promtool("test", "rules", PROMETHEUS / "tests" / "alerts_test.yaml")
    yield check_failed_calls(dashboards)
    with tempfile.TemporaryDirectory() as folder:
        # Every expression of a panel as a rule: promtool reads it with Prometheus' own parser.
        rules = [{"record": f"panel:expression:{i}", "expr": expr}
                 for i, (_, expr) in enumerate(expressions(dashboards))]
        path = pathlib.Path(folder, "panels.yaml")
        path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
        yield promtool("check", "rules", path)
        config = (ROOT / "deploy" / "compose" / "prometheus.yml").read_text()
        path = pathlib.Path(folder, "prometheus.yml")
        path.write_text(config.replace("/etc/prometheus/rules", str(PROMETHEUS / "rules")))
        yield promtool("check", "config", path)
    yield promtool("check", "config", PROMETHEUS / "cluster_up.yml")


def check_generated(dashboards_text):
    make = runpy.run_path(str(GRAFANA / "make_dashboards"))
    if make["dashboards"]() != dashboards_text:
        yield "deploy/grafana/dashboards is not what make_dashboards makes"
    rule = runpy.run_path(str(PROMETHEUS / "make_rule"))
    if rule["text"]() != (PROMETHEUS / "rule.yaml").read_text(encoding="utf-8"):
        yield "deploy/prometheus/rule.yaml is not what make_rule makes"
    [made] = load_file(PROMETHEUS / "rule.yaml")
    groups = [group for path in RULE_FILES for group in load_file(path)[0]["groups"]]
    if made["spec"]["groups"] != groups:
        yield "deploy/prometheus/rule.yaml has other groups than rules/"


def labels_of_targets(job):
    """The labels that a scrape job gives its targets."""
    return {"job"} | {rule.get("target_label") for rule in job["relabel_configs"]}


def check_scraping():
    """Every way of scraping gives targets the labels that rules and dashboards go by."""
    wanted = Catalogue.TARGET_LABELS
    for path in (PROMETHEUS / "kubernetes.yml", PROMETHEUS / "cluster_up.yml",
                 ROOT / "deploy" / "compose" / "prometheus.yml"):
        [config] = load_file(path)
        for job in config["scrape_configs"]:
            # Without a relabeling, instance is the address.
            missing = wanted - labels_of_targets(job) - {"instance"}
            if missing or job["job_name"] != "weft":
                yield f"{path.name}: targets of {job['job_name']} have no {sorted(missing)}"
    [monitor] = load_file(ROOT / "deploy" / "k8s" / "components" / "monitoring" / "pod-monitor.yaml")
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        missing = wanted - {"job"} - {rule["targetLabel"] for rule in endpoint["relabelings"]}
        if missing or monitor["spec"]["jobLabel"] != "app.kubernetes.io/name":
            yield f"pod-monitor.yaml: targets have no {sorted(missing)}"


def first_alert(documents):
    return next(rule for rule in rules_of(documents) if "alert" in rule)


def faults_are_found(documents, tests, dashboards):
    def broken_rules(change):
        copies = copy.deepcopy(documents)
        change(first_alert(copies))
        return list(check_rules(copies, tests))

    def broken_dashboard(change):
        copies = copy.deepcopy(dashboards)
        change(copies["weft-run.json"])
        return list(check_dashboards(copies, Catalogue(TABLE, rules_of(documents))))

    renamed = TABLE.replace("`weft_lock_run_phase`", "`weft_lock_phase`")
    no_failed = TABLE.replace("paused, failed, done", "paused, done")
    panel = next(i for i, p in enumerate(dashboards["weft-run.json"]["panels"]) if p["type"] != "row")
    cases = {
        "nobody exports weft_lock_phase": broken_rules(
            lambda rule: rule.update(expr="weft_lock_phase == 1")),
        "has no label fase": broken_rules(
            lambda rule: rule.update(expr='weft_lock_run_phase{fase="failed"} == 1')),
        "has no phase broken": broken_rules(
            lambda rule: rule.update(expr='weft_lock_run_phase{phase="broken"} == 1')),
        "groups by rum": broken_rules(
            lambda rule: rule.update(expr="max by (rum) (weft_lock_run_phase) == 1")),
        "no entry in docs": broken_rules(lambda rule: rule.update(alert="WeftOther")),
        "no test sees it": broken_rules(lambda rule: rule.update(alert="WeftOther")),
        "nobody exports weft_lock_run_phase": list(check_rules(documents, tests, renamed)),
        "has no phase failed": list(check_rules(documents, tests, no_failed)),
        "there is no alert WeftExtra": list(check_rules(documents, tests,
                                                        runbook=RUNBOOK + "\n### WeftExtra\n")),
        "there is no variable rum": broken_dashboard(lambda d: d["panels"][panel]["targets"][0].update(
            expr='weft_lock_run_phase{run="$rum"}')),
        "nobody exports weft_lock_fase": broken_dashboard(
            lambda d: d["panels"][panel]["targets"][0].update(expr="weft_lock_fase")),
        "has no description": broken_dashboard(lambda d: d["panels"][panel].pop("description")),
        "two panels": broken_dashboard(lambda d: d["panels"][panel].update(id=d["panels"][-1]["id"])),
        "is no dashboard": broken_dashboard(lambda d: d["links"][0].update(url="/d/weft-other")),
    }
    for word, found in cases.items():
        if not any(word in problem for problem in found):
            yield f"a fault was not found: {word}; but {found}"
    with tempfile.TemporaryDirectory() as folder:  # a test that must fail does
        shutil.copytree(PROMETHEUS, pathlib.Path(folder, "prometheus"))
        path = pathlib.Path(folder, "prometheus", "rules", "weft-alerts.yaml")
        text = path.read_text()
        path.write_text(text.replace("ratio5m > 0.3", "ratio5m > 0.5"))
        if promtool("test", "rules", path.parents[1] / "tests" / "alerts_test.yaml") is None:
            yield "promtool did not see that an alert no longer fires"


def main():
    documents = [document for path in RULE_FILES for document in load_file(path)]
    [tests] = load_file(PROMETHEUS / "tests" / "alerts_test.yaml")
    texts = {path.name: path.read_text(encoding="utf-8")
             for path in (GRAFANA / "dashboards").glob("*.json")}
    dashboards = {name: json.loads(text) for name, text in texts.items()}
    catalogue = Catalogue(TABLE, rules_of(documents))
    if catalogue.exported < 50:
        sys.exit(f"docs/metrics.md: only {catalogue.exported} metrics were found in its table")
    failures = [*check_rules(documents, tests), *check_dashboards(dashboards, catalogue),
                *check_generated(texts), *check_scraping()]
    if shutil.which("promtool"):
        failures += [problem for problem in check_with_promtool(dashboards) if problem]
    else:
        failures.append("promtool is not installed (scripts/setup)")
    if not failures:
        failures += faults_are_found(documents, tests, dashboards)
    count = len(list(expressions(dashboards)))
    print(f"{len(rules_of(documents))} rules, {len(dashboards)} dashboards with {count} expressions, "
          f"{len(failures)} problems")
    sys.exit("\n".join(failures) if failures else 0)


if __name__ == "__main__":
    main()
