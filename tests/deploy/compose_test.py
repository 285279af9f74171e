#!/usr/bin/env python3
"""Holds deploy/compose and deploy/docker: command lines against the programs, names and ports against each other,
mounted files against the tree. Then breaks copies of them and sees that each fault is found.

  tests/deploy/compose_test.py FOLDER_OF_PROGRAMS
"""

import copy
import pathlib
import re
import sys

from programs import Programs
from render import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "deploy" / "compose"
SERVICE_KEYS = {"image", "build", "command", "environment", "ports", "volumes", "networks", "depends_on",
                "restart", "read_only", "cap_drop", "security_opt", "mem_limit", "healthcheck", "tmpfs",
                "stop_grace_period", "scale", "profiles"}
TOP_KEYS = {"name", "services", "networks", "volumes", "x-weft", "x-weft-all"}
SERVERS = {"weft-lock-server", "weft-partition-server", "weft-param-server"}


def version():
    return re.search(r"project\(weft VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def is_ours(service):
    return service["image"].startswith("weft-")


def flags_of(service):
    return {word.partition("=")[0]: word.partition("=")[2] for word in service["command"]
            if word.startswith("--")}


def listens(service, flag):
    return flags_of(service).get(flag, "").rpartition(":")[2]


def check_service(name, service, compose, programs, dockerfile):
    for key in set(service) - SERVICE_KEYS:
        yield f"{name}: no such key: {key}"
    services = compose["services"]
    for other in service.get("depends_on", []):
        if other not in services:
            yield f"{name}: there is no service {other}"
    for mount in service.get("volumes", []):
        source = mount.split(":")[0]
        if source.startswith("."):
            if not (COMPOSE / source).exists():
                yield f"{name}: there is no {source}"
        elif source not in compose["volumes"]:
            yield f"{name}: there is no volume {source}"
    for port in service.get("ports", []):
        if not str(port).startswith("127.0.0.1:"):
            yield f"{name}: {port} is open to the network"
    if service.get("cap_drop") != ["ALL"]:
        yield f"{name}: keeps capabilities"
    image, _, tag = service["image"].rpartition(":")
    if not image or tag == "latest":
        yield f"{name}: image {service['image']} has no fixed version"
    if not is_ours(service):
        return
    if not service.get("read_only"):
        yield f"{name}: can write to its root"
    if tag != version() or image not in ("weft-servers", "weft-all"):
        yield f"{name}: image {service['image']}; the version is {version()}"
    if service["build"]["target"] != image.removeprefix("weft-"):
        yield f"{name}: builds {service['build']['target']} as {image}"
    if f" AS {service['build']['target']}\n" not in dockerfile:
        yield f"{name}: the Dockerfile has no {service['build']['target']}"
    words = service["command"]
    if words[0] == "sh":
        return
    if (words[0] in SERVERS) != (image == "weft-servers"):
        yield f"{name}: {words[0]} is not in {image}"
    known, given = programs.help_of(words)
    if known is None:
        yield f"{name}: {words[0]}: no such program or command"
        return
    for word in given:
        flag, equals, _ = word.partition("=")
        if word.startswith("-") and (flag not in known or known[flag] != bool(equals)):
            yield f"{name}: {words[0]} does not know {word}"
    for word in words:
        address = re.search(r"(?:=|^)([a-z][a-z0-9-]*):(\d+)$", word)
        if address and (address[1] not in services or
                        listens(services[address[1]], "--listen") != address[2]):
            yield f"{name}: {word}: nobody listens there"
    if "--advertise" in flags_of(service) and flags_of(service)["--advertise"].split(":")[0] != name:
        yield f"{name}: --advertise is another service"
    if ("--metrics-listen" in flags_of(service)) == service["healthcheck"].get("disable", False):
        yield f"{name}: its health check and --metrics-listen do not go together"


def seconds(text):
    return float(text.removesuffix("s"))


def check(compose, prometheus, programs, dockerfile):
    for key in set(compose) - TOP_KEYS:
        yield f"no such key: {key}"
    for name, service in compose["services"].items():
        yield from check_service(name, service, compose, programs, dockerfile)
    services = compose["services"]
    trainer = flags_of(services["trainer"])
    if seconds(services["trainer"]["stop_grace_period"]) < float(trainer["--grace"]) + 10:
        yield "trainer: stop_grace_period leaves nothing beside --grace"
    if flags_of(services["lock-server"])["--param-servers"] != str(
            sum(s.get("command", [""])[0] == "weft-param-server" for s in services.values())):
        yield "lock-server: --param-servers is another number"
    [job] = [job for job in prometheus["scrape_configs"] if job["job_name"] == "weft"]
    [names] = job["dns_sd_configs"]
    with_metrics = {name for name, service in services.items()
                    if is_ours(service) and "--metrics-listen" in flags_of(service)}
    if set(names["names"]) != with_metrics:
        yield f"prometheus.yml: scrapes {sorted(names['names'])}, metrics are at {sorted(with_metrics)}"
    health = re.search(r"port=\$\{2:-(\d+)\}", (ROOT / "deploy/docker/weft-health").read_text())[1]
    for name in with_metrics:
        port = listens(services[name], "--metrics-listen")
        if port != str(names["port"]) or port != health:
            yield f"{name}: metrics at port {port}, asked for at {names['port']} and {health}"
    yield from (f"run.json: {p}" for p in programs.config_problems((COMPOSE / "run.json").read_text()))


def check_docker(dockerfile):
    for what in (f'image.version="{version()}"', "USER 10001:10001", "HEALTHCHECK", " AS servers\n",
                 " AS all\n", "org.opencontainers.image.title", "org.opencontainers.image.licenses"):
        if what not in dockerfile:
            yield f"Dockerfile: has no {what.strip()}"
    for line in re.findall(r"^COPY (?!--from)(\S+) ", dockerfile, re.M):
        if not (ROOT / line).exists():
            yield f"Dockerfile: there is no {line}"
    built = re.search(r"scripts/build release (.*)", dockerfile)[1].split()
    for name in re.findall(r"\b(weft-[a-z-]+-server|weft-trainer|weft|libweft_nn\.so)\b",
                           re.search(r"deploy/docker/collect.*?\n\n", dockerfile, re.S)[0]):
        if name.removeprefix("lib").removesuffix(".so") not in built:
            yield f"Dockerfile: {name} is not built"


def faults_are_found(compose, prometheus, programs, dockerfile):
    def broken(change):
        copies = copy.deepcopy((compose, prometheus))
        change(*copies)
        return list(check(*copies, programs, dockerfile))

    trainer = compose["services"]["trainer"]["command"].index("--threads=1")
    cases = {
        "no such key": broken(lambda c, p: c["services"]["trainer"].update(volume=[])),
        "does not know": broken(
            lambda c, p: c["services"]["trainer"]["command"].__setitem__(trainer, "--thread=1")),
        "nobody listens": broken(
            lambda c, p: c["services"]["pull"]["command"].__setitem__(3, "lock-server:7001")),
        "there is no service": broken(lambda c, p: c["services"]["trainer"].update(depends_on=["lock"])),
        "there is no ./": broken(
            lambda c, p: c["services"]["eval"].update(volumes=["./config.json:/etc/weft/run.json:ro"])),
        "there is no volume": broken(lambda c, p: c["volumes"].pop("data")),
        "metrics at port": broken(
            lambda c, p: p["scrape_configs"][0]["dns_sd_configs"][0].update(port=9465)),
        "metrics are at": broken(
            lambda c, p: p["scrape_configs"][0]["dns_sd_configs"][0]["names"].pop()),
        "the version is": broken(lambda c, p: c["services"]["trainer"].update(image="weft-all:0.0.9")),
        "open to the network": broken(
            lambda c, p: c["services"]["grafana"].update(ports=["3000:3000"])),
        "another number": broken(lambda c, p: c["services"].pop("param-server")),
        "do not go together": broken(lambda c, p: c["services"]["import"].update(healthcheck={})),
        "has no USER": list(check_docker(dockerfile.replace("USER", "#"))),
        "is not built": list(check_docker(dockerfile.replace("weft-trainer weft weft_nn", "weft"))),
    }
    for word, found in cases.items():
        if not any(word in problem for problem in found):
            yield f"a fault was not found: {word}; but {found}"


def main():
    programs = Programs(sys.argv[1])
    [compose] = load_file(COMPOSE / "compose.yaml")
    [prometheus] = load_file(COMPOSE / "prometheus.yml")
    dockerfile = (ROOT / "deploy/docker/Dockerfile").read_text(encoding="utf-8")
    failures = [*check(compose, prometheus, programs, dockerfile), *check_docker(dockerfile)]
    for path in ("grafana/provisioning/datasources/prometheus.yaml",
                 "grafana/provisioning/dashboards/weft.yaml"):
        load_file(ROOT / "deploy" / path)
    if not failures:
        failures += faults_are_found(compose, prometheus, programs, dockerfile)
    print(f"compose: {len(compose['services'])} services, {len(failures)} problems")
    sys.exit("\n".join(failures) if failures else 0)


if __name__ == "__main__":
    main()
