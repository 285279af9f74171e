#!/usr/bin/env python3
"""Holds deploy/k8s: renders every overlay and its Jobs and checks that all parts fit each other, the programs
and the configuration. Then breaks copies of it and sees that each fault is found.

  tests/deploy/k8s_test.py FOLDER_OF_PROGRAMS
"""

import copy
import json
import pathlib
import re
import subprocess
import sys

import k8s_checks as checks
from k8s_fields import KINDS, LEGACY_KINDS, check_fields
from programs import Programs
from promql import Catalogue
from render import load_all, load_file, pod_specs, render

ROOT = pathlib.Path(__file__).resolve().parents[2]
K8S = ROOT / "deploy" / "k8s"
OVERLAYS = {"local": {"plan": "overlays/local"}, "production": {"plan": "overlays/production"},
            "legacy": {"plan": "base"}}


METRICS = Catalogue((ROOT / "docs" / "metrics.md").read_text(encoding="utf-8"), []).metrics


def version():
    return re.search(r"project\(weft VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def problems_of(run, jobs, overlay, programs):
    """All problems of an overlay: `run` is what is applied first, `jobs` what is done with it."""
    kinds = LEGACY_KINDS if overlay == "legacy" else KINDS
    for docs in (run, jobs):
        wrong = list(check_fields(docs, kinds))
        if wrong:  # the other checks read fields as they should be
            yield from wrong
            return
    yield from checks.check_selectors(run)
    yield from checks.check_selectors(jobs)
    yield from checks.check_volumes(run)
    yield from checks.check_volumes(jobs, run)
    yield from checks.check_addresses(run)
    yield from checks.check_addresses(jobs, run)
    yield from checks.check_scaling(run, METRICS)
    yield from checks.check_probes(run, http_only=overlay != "local")
    yield from checks.check_ends(run)
    yield from checks.check_param_servers(run)
    yield from checks.check_network(run, jobs)
    wrong = list(checks.check_run_config(run, programs.config_problems))
    yield from wrong
    if not wrong:
        [(_, config)] = checks.run_configs(run)
        plan = K8S / OVERLAYS[overlay]["plan"] / "plan.args"
        yield from checks.check_plan(run, programs.plan(config, plan.read_text().split()))
    for docs in (run, jobs):
        yield from checks.check_ports(docs)
        yield from checks.check_resources(docs)
        yield from checks.check_security(docs)
        yield from checks.check_images(docs, version())
        yield from checks.check_commands(docs, programs.help_of)


def resources_are_the_plans(programs):
    """resources.yaml is what resources_from_plan makes of the plan."""
    for folder in (K8S / "overlays" / "local", K8S / "overlays" / "production"):
        plan = programs.plan((folder / "run.json").read_text(),
                             (folder / "plan.args").read_text().split())
        made = subprocess.run([sys.executable, K8S / "resources_from_plan", "-",
                               *(folder / "resources.args").read_text().split()],
                              input=json.dumps(plan), capture_output=True, text=True, check=True)
        if made.stdout != (folder / "resources.yaml").read_text():
            yield f"{folder.name}/resources.yaml is not what deploy/k8s/resources_from_plan makes"


def certificates_are_right():
    folder = K8S / "components" / "cert-manager"
    made = [doc for path in sorted(folder.glob("*.yaml")) if path.name != "kustomization.yaml"
            for doc in load_file(path)]
    mounting = render(K8S / "overlays" / "production") + render(K8S / "overlays" / "production" / "jobs")
    yield from check_fields(made)
    yield from checks.check_certificates(mounting, made)
    broken = copy.deepcopy(made)
    find(broken, "Certificate", "weft-trainer")["spec"]["dnsNames"] = ["operator.weft"]
    if not list(checks.check_certificates(mounting, broken)):
        yield "a certificate of another role was not found"


def find(docs, kind, name):
    [doc] = [d for d in docs if d["kind"] == kind and d["metadata"]["name"] == name]
    return doc


def container(docs, kind, name):
    [pod] = pod_specs(find(docs, kind, name))
    return pod["spec"]["containers"][0]


def rename(mapping, old, new):
    mapping[new] = mapping.pop(old)


def replace_word(words, old, new):
    words[words.index(old)] = new


LOCK, PART, PARAM = [("StatefulSet", f"weft-{role}") for role in checks.SERVERS]
TRAINER, IMPORT = ("Deployment", "weft-trainer"), ("Job", "weft-import")


def pod(docs, which):
    return pod_specs(find(docs, *which))[0]


# Faults, each with a word that its message has.
FAULTS = [
    ("no such field", lambda run, jobs: rename(container(run, *LOCK), "livenessProbe", "livenesProbe")),
    ("no such field", lambda run, jobs: rename(pod(jobs, IMPORT)["spec"], "restartPolicy", "restart")),
    ("is not of type", lambda run, jobs: find(run, *PART)["spec"].update(replicas="2")),
    ("no kind of one namespace", lambda run, jobs: run.append(
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
         "metadata": {"name": "weft"}})),
    ("has no port grpc", lambda run, jobs: container(run, *PART)["ports"][0].update(name="rpc")),
    ("is another one at", lambda run, jobs: container(run, *PART)["ports"][0].update(
        containerPort=7101)),
    ("asks port", lambda run, jobs: container(run, *TRAINER)["readinessProbe"]["httpGet"].update(
        port="metric")),
    ("prometheus.io/port is", lambda run, jobs: pod(run, LOCK)["metadata"]["annotations"].update(
        {"prometheus.io/port": "9090"})),
    ("but port metrics is", lambda run, jobs: replace_word(
        container(run, *LOCK)["args"], "--metrics-listen=0.0.0.0:9464",
        "--metrics-listen=0.0.0.0:9465")),
    ("asks for /healthz", lambda run, jobs: container(run, *TRAINER)["readinessProbe"][
        "httpGet"].update(path="/healthz")),
    ("does not fit the labels", lambda run, jobs: find(run, *TRAINER)["spec"]["selector"][
        "matchLabels"].update({checks.COMPONENT: "trainers"})),
    ("selects no pods", lambda run, jobs: find(run, "PodDisruptionBudget", "weft-trainer")["spec"][
        "selector"]["matchLabels"].update({checks.COMPONENT: "trainers"})),
    ("spreads other pods", lambda run, jobs: pod(run, TRAINER)["spec"]["topologySpreadConstraints"][
        0]["labelSelector"]["matchLabels"].update({checks.COMPONENT: "x"})),
    ("of which it is none", lambda run, jobs: pod(jobs, IMPORT)["metadata"]["labels"].pop(
        "app.kubernetes.io/part-of")),
    ("there is no Service", lambda run, jobs: find(run, *PART)["spec"].update(serviceName="weft")),
    ("to set", lambda run, jobs: find(run, *TRAINER)["spec"].update(replicas=2)),
    ("which is no volume", lambda run, jobs: container(run, *LOCK)["volumeMounts"][0].update(
        name="date")),
    ("nobody mounts", lambda run, jobs: container(run, *TRAINER)["volumeMounts"].pop()),
    ("there is no ConfigMap", lambda run, jobs: pod(jobs, IMPORT)["spec"]["volumes"][1][
        "configMap"].update(name="weft-runs")),
    ("there is no PersistentVolumeClaim", lambda run, jobs: run.remove(
        find(run, "PersistentVolumeClaim", "weft-data"))),
    ("no such Service and port", lambda run, jobs: replace_word(
        container(run, *TRAINER)["args"], "--lock-server=weft-lock-server:7000",
        "--lock-server=weft-lock-server:7001")),
    ("is not of its own Service", lambda run, jobs: replace_word(
        container(run, *PART)["args"],
        "--advertise=$(POD_NAME).weft-partition-server.$(POD_NAMESPACE).svc:7100",
        "--advertise=$(POD_NAME).weft-param-server.$(POD_NAMESPACE).svc:7200")),
    ("there is no variable", lambda run, jobs: container(run, *TRAINER)["env"].pop()),
    ("than its limit", lambda run, jobs: container(run, *TRAINER)["resources"]["requests"].update(
        memory="100Gi")),
    ("the plan says", lambda run, jobs: container(run, *TRAINER)["resources"]["requests"].update(
        memory="16Mi")),
    ("the plan is of 2 threads", lambda run, jobs: container(run, *TRAINER)["resources"]["limits"].update(cpu="3")),
    ("the plan is for", lambda run, jobs: find(run, *PART)["spec"].update(replicas=1)),
    ("another number of replicas", lambda run, jobs: find(run, *PARAM)["spec"].update(replicas=3)),
    ("may run as root", lambda run, jobs: pod(run, TRAINER)["spec"]["securityContext"].update(
        runAsUser=0)),
    ("can write to its root", lambda run, jobs: container(run, *TRAINER)["securityContext"].update(
        readOnlyRootFilesystem=False)),
    ("gets a token", lambda run, jobs: pod(run, TRAINER)["spec"].pop("automountServiceAccountToken")),
    ("leaves nothing beside", lambda run, jobs: pod(run, TRAINER)["spec"].update(
        terminationGracePeriodSeconds=30)),
    ("before trainers have handed back", lambda run, jobs: container(run, *PART)["lifecycle"][
        "preStop"]["exec"].update(command=["sleep", "5"])),
    ("the version is", lambda run, jobs: container(run, *TRAINER).update(image="weft-all:latest")),
    ("is in weft-all", lambda run, jobs: container(run, *TRAINER).update(
        image="weft-servers:" + version())),
    ("may call", lambda run, jobs: find(run, "NetworkPolicy", "weft-param-server")["spec"][
        "ingress"][0]["from"].append({"podSelector": {"matchLabels": {checks.APP: "stranger"}},
                                      "namespaceSelector": {}})),
    ("may call partition-server", lambda run, jobs: find(run, "NetworkPolicy", "weft-lock-server")[
        "spec"].update(policyTypes=["Ingress", "Egress"], egress=find(
            run, "NetworkPolicy", "weft-trainer")["spec"]["egress"]) or find(
                run, "NetworkPolicy", "weft-partition-server")["spec"]["ingress"][0]["from"].append(
                    {"podSelector": {"matchLabels": {checks.COMPONENT: "lock-server"}}})),
    ("cannot call", lambda run, jobs: find(run, "NetworkPolicy", "weft-param-server")["spec"][
        "ingress"][0]["from"].pop()),
    ("cannot call", lambda run, jobs: find(run, "NetworkPolicy", "weft-lock-server")["spec"][
        "ingress"][0]["ports"][0].update(port="rpc")),
    ("does not know --thread", lambda run, jobs: container(run, *TRAINER)["args"].append(
        "--thread=4")),
    ("does not know --held", lambda run, jobs: container(jobs, *IMPORT)["args"].append("--held=a=b")),
    ("no such program", lambda run, jobs: container(jobs, *IMPORT).update(command=["weft-import"])),
    ("num_epoch", lambda run, jobs: find(run, "ConfigMap", "weft-run")["data"].update(
        {"run.json": find(run, "ConfigMap", "weft-run")["data"]["run.json"].replace(
            "num_epochs", "num_epoch")})),
]


def faults_are_found(run, jobs, programs):
    for i, (word, break_it) in enumerate(FAULTS):
        broken = copy.deepcopy((run, jobs))
        break_it(*broken)
        found = list(problems_of(*broken, "local", programs))
        if not any(word in problem for problem in found):
            yield f"fault {i} ({word}) was not found, but {found}"
    try:
        load_all("a: 1\na: 2\n", "twice")
        yield "a key that is there twice was not found"
    except ValueError:
        pass
    legacy = [doc for doc in copy.deepcopy(run) if doc["kind"] == "PodDisruptionBudget"]
    if not list(check_fields(legacy, LEGACY_KINDS)):
        yield "policy/v1 was not found in the overlay for 1.20"
    scaler = copy.deepcopy(find(render(K8S / "overlays" / "production"), "HorizontalPodAutoscaler",
                                "weft-trainer"))
    scaler["spec"]["metrics"] = [{"type": "Pods", "pods": {"metric": {"name": "weft_trainer_waits"}}}]
    if not list(checks.check_scaling([scaler], METRICS)):
        yield "an autoscaler that goes by a metric of nobody was not found"


def main():
    programs = Programs(sys.argv[1])
    failures = [*resources_are_the_plans(programs), *certificates_are_right()]
    for overlay in OVERLAYS:
        run = render(K8S / "overlays" / overlay)
        jobs = render(K8S / "overlays" / overlay / "jobs")
        found = [f"{overlay}: {problem}" for problem in problems_of(run, jobs, overlay, programs)]
        print(f"{overlay}: {len(run)} + {len(jobs)} resources, {len(found)} problems", flush=True)
        failures += found
        if overlay == "local" and not found:
            failures += faults_are_found(run, jobs, programs)
            print(f"{overlay}: {len(FAULTS)} faults were looked for")
    sys.exit("\n".join(failures) if failures else 0)


if __name__ == "__main__":
    main()
