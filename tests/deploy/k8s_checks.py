"""What a schema does not see: that the manifests of one run fit each other. Each check yields its problems."""

import json
import math
import re
import shlex

from render import pod_specs

APP = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
# Who may call whom, and at which port; tools are import, pull and what people ask. `prometheus`: scrapes.
SERVERS = ("lock-server", "partition-server", "param-server")
ARROWS = {
    ("trainer", "lock-server", "grpc"), ("trainer", "partition-server", "grpc"),
    ("trainer", "param-server", "grpc"), ("partition-server", "lock-server", "grpc"),
    ("partition-server", "partition-server", "grpc"), ("param-server", "lock-server", "grpc"),
    ("param-server", "partition-server", "grpc"), ("tools", "lock-server", "grpc"),
    ("tools", "partition-server", "grpc")} | {
        ("prometheus", role, "metrics") for role in SERVERS + ("trainer",)}


def named(doc):
    return f"{doc['kind']} {doc['metadata']['name']}"


def of_kind(docs, *kinds):
    return [doc for doc in docs if doc["kind"] in kinds]


def pods(docs):
    """(document, labels, pod spec) of everything that makes pods."""
    return [(doc, pod["metadata"].get("labels", {}), pod["spec"])
            for doc in docs for pod in pod_specs(doc)]


def selects(selector, labels):
    return all(labels.get(key) == value for key, value in (selector or {}).items())


def port_names(spec):
    return {port["name"]: port["containerPort"] for container in spec["containers"]
            for port in container.get("ports", [])}


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def flags_of(container):
    """The flags of a command line and their values ("" without one)."""
    words = container.get("command", []) + container.get("args", [])
    return {word.partition("=")[0]: word.partition("=")[2] for word in words if word.startswith("-")}


def check_selectors(docs):
    made = pods(docs)
    for doc, labels, _ in made:
        selector = doc["spec"].get("selector", {}).get("matchLabels")
        if selector is not None and not selects(selector, labels):
            yield f"{named(doc)}: its selector does not fit the labels of its pods"
    for doc in of_kind(docs, "Service", "PodDisruptionBudget", "PodMonitor"):
        selector = doc["spec"]["selector"]
        selector = selector if doc["kind"] == "Service" else selector["matchLabels"]
        if not any(selects(selector, labels) for _, labels, _ in made):
            yield f"{named(doc)}: selects no pods"
    for doc, labels, spec in made:
        for spread in spec.get("topologySpreadConstraints", []):
            if not selects(spread["labelSelector"]["matchLabels"], labels):
                yield f"{named(doc)}: spreads other pods than its own"
        near = spec.get("affinity", {}).get("podAffinity", {})
        for term in near.get("requiredDuringSchedulingIgnoredDuringExecution", []):
            if not selects(term["labelSelector"]["matchLabels"], labels):
                yield f"{named(doc)}: wants to be where pods are of which it is none, so the first waits"
    services = {doc["metadata"]["name"] for doc in of_kind(docs, "Service")}
    for doc in of_kind(docs, "StatefulSet"):
        if doc["spec"]["serviceName"] not in services:
            yield f"{named(doc)}: there is no Service {doc['spec']['serviceName']}"
    for doc in of_kind(docs, "HorizontalPodAutoscaler"):
        target = doc["spec"]["scaleTargetRef"]
        scaled = [other for other in docs if other["kind"] == target["kind"] and
                  other["metadata"]["name"] == target["name"]]
        if not scaled:
            yield f"{named(doc)}: there is no {target['kind']} {target['name']}"
    for doc in of_kind(docs, "Deployment"):
        if "replicas" in doc["spec"]:
            yield f"{named(doc)}: replicas are kubectl scale's and the autoscaler's to set"


def check_volumes(docs, elsewhere=()):
    """`elsewhere`: documents that are applied before."""
    there = {(doc["kind"], doc["metadata"]["name"]) for doc in list(docs) + list(elsewhere)}
    accounts = {doc["metadata"]["name"] for doc in of_kind(list(docs) + list(elsewhere),
                                                           "ServiceAccount")}
    for doc, _, spec in pods(docs):
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        claims = {claim["metadata"]["name"] for claim in doc["spec"].get("volumeClaimTemplates", [])}
        used = set()
        for container in containers(spec):
            for mount in container.get("volumeMounts", []):
                used.add(mount["name"])
                if mount["name"] not in set(volumes) | claims:
                    yield f"{named(doc)}: mounts {mount['name']}, which is no volume"
        for name in (set(volumes) | claims) - used:
            yield f"{named(doc)}: nobody mounts volume {name}"
        for volume in volumes.values():
            config = volume.get("configMap", {}).get("name")
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            for kind, name in (("ConfigMap", config), ("PersistentVolumeClaim", claim)):
                if name and (kind, name) not in there:
                    yield f"{named(doc)}: there is no {kind} {name}"
        if spec["serviceAccountName"] not in accounts:
            yield f"{named(doc)}: there is no ServiceAccount {spec['serviceAccountName']}"


def check_ports(docs):
    made = pods(docs)
    for doc in of_kind(docs, "Service"):
        for port in doc["spec"]["ports"]:
            if port.get("protocol") != "TCP":
                yield f"{named(doc)}: port {port['name']} has no protocol: TCP"
            for other, labels, spec in made:
                if not selects(doc["spec"]["selector"], labels):
                    continue
                if port["targetPort"] not in port_names(spec):
                    yield f"{named(doc)}: {named(other)} has no port {port['targetPort']}"
                elif port["port"] != port_names(spec)[port["targetPort"]]:
                    yield f"{named(doc)}: port {port['port']} is another one at {named(other)}"
    for doc, labels, spec in made:
        names = port_names(spec)
        for container in spec["containers"]:
            for probe in PROBES:
                for how in ("grpc", "httpGet"):
                    port = container.get(probe, {}).get(how, {}).get("port")
                    if port is not None and port not in names and port not in names.values():
                        yield f"{named(doc)}: {probe} asks port {port}, which it has not"
            flags = flags_of(container)
            for flag, name in (("--listen", "grpc"), ("--metrics-listen", "metrics")):
                if flag in flags and flags[flag] != f"0.0.0.0:{names.get(name)}":
                    yield f"{named(doc)}: {flag}={flags[flag]}, but port {name} is {names.get(name)}"
        for pod in pod_specs(doc):
            notes = pod["metadata"].get("annotations", {})
            if ("metrics" in names) != ("prometheus.io/port" in notes):
                yield f"{named(doc)}: its port metrics and the annotation do not go together"
            if "metrics" in names and notes.get("prometheus.io/port") != str(names["metrics"]):
                yield f"{named(doc)}: prometheus.io/port is {notes.get('prometheus.io/port')}"
    for doc in of_kind(docs, "PodMonitor"):
        for endpoint in doc["spec"]["podMetricsEndpoints"]:
            if not any(endpoint["port"] in port_names(spec) for _, _, spec in made):
                yield f"{named(doc)}: nobody has a port {endpoint['port']}"


def check_addresses(docs, elsewhere=()):
    """What the command lines call is a Service of that name and port."""
    services = {doc["metadata"]["name"]: {port["port"] for port in doc["spec"]["ports"]}
                for doc in of_kind(list(docs) + list(elsewhere), "Service")}
    address = re.compile(r"(?:=|^)(?:\$\(POD_NAME\)\.)?(weft-[a-z-]+)(?:\.\$\(POD_NAMESPACE\)\.svc)?:(\d+)$")
    for doc, _, spec in pods(docs):
        for container in containers(spec):
            for word in container.get("args", []):
                found = address.search(word)
                if re.search(r":\d+$", word) and not found and "0.0.0.0" not in word:
                    yield f"{named(doc)}: {word} is no address of a Service"
                if found and int(found[2]) not in services.get(found[1], ()):
                    yield f"{named(doc)}: {word}: there is no such Service and port"
            flags = flags_of(container)
            if "--advertise" in flags and doc["spec"].get("serviceName") not in flags["--advertise"]:
                yield f"{named(doc)}: --advertise is not of its own Service"
            variables = set(re.findall(r"\$\((\w+)\)", " ".join(container.get("args", []))))
            for name in variables - {entry["name"] for entry in container.get("env", [])}:
                yield f"{named(doc)}: there is no variable {name}"


def check_certificates(docs, made):
    """`made`: documents of cert-manager. Every Secret that is mounted has a certificate of its role, and of
    that alone; tools are operators."""
    certificates = {doc["spec"]["secretName"]: doc["spec"] for doc in of_kind(made, "Certificate")}
    mounted = set()
    for doc, labels, spec in pods(docs):
        for volume in spec.get("volumes", []):
            name = volume.get("secret", {}).get("secretName")
            if name is None:
                continue
            mounted.add(name)
            role = "operator" if labels[COMPONENT] == "tools" else labels[COMPONENT]
            if certificates.get(name, {}).get("dnsNames") != [f"{role}.weft"]:
                yield f"{named(doc)}: {name} is no certificate of a {role}"
    for name in set(certificates) - mounted - {"weft-ca"}:
        yield f"nobody mounts {name}"


def check_scaling(docs, metrics):
    """`metrics`: names of what the programs export."""
    for doc in of_kind(docs, "HorizontalPodAutoscaler"):
        for metric in doc["spec"]["metrics"]:
            name = metric.get("pods", {}).get("metric", {}).get("name")
            if name is not None and name not in metrics:
                yield f"{named(doc)}: nobody exports {name}"
            if metric["type"] == "Resource" and metric["resource"]["name"] not in ("cpu", "memory"):
                yield f"{named(doc)}: there is no resource {metric['resource']['name']}"


UNITS = {"": 1, "m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6,
         "G": 1e9}


def quantity(text):
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text))
    if not found or found[2] not in UNITS:
        raise ValueError(f"{text!r} is no quantity")
    return float(found[1]) * UNITS[found[2]]


def check_resources(docs):
    for doc, _, spec in pods(docs):
        for container in containers(spec):
            for what in ("cpu", "memory"):
                try:
                    least = quantity(container["resources"]["requests"][what])
                    most = quantity(container["resources"]["limits"][what])
                except (KeyError, ValueError) as error:
                    yield f"{named(doc)}: {container['name']}: {what}: {error}"
                    continue
                if least > most:
                    yield f"{named(doc)}: {container['name']}: requests more {what} than its limit"


def check_plan(docs, plan):
    """Every role has the memory and the volume that weft plan asks for."""
    components = {"lock server": "lock-server", "partition server": "partition-server",
                  "parameter server": "param-server", "trainer": "trainer"}
    for role in plan["roles"]:
        [(doc, _, spec)] = [entry for entry in pods(docs)
                            if entry[1].get(COMPONENT) == components[role["role"]]]
        given = quantity(spec["containers"][0]["resources"]["requests"]["memory"])
        if given < role["memory_bytes"]:
            yield f"{named(doc)}: {given:.0f} bytes of memory, the plan says {role['memory_bytes']}"
        cores = math.ceil(quantity(spec["containers"][0]["resources"]["limits"]["cpu"]))
        if role["role"] == "trainer" and role["threads"] != cores:
            yield f"{named(doc)}: {cores} cores, the plan is of {role['threads']} threads"
        for claim in doc["spec"].get("volumeClaimTemplates", []):
            room = quantity(claim["spec"]["resources"]["requests"]["storage"])
            if room < role["disk_bytes"]:
                yield f"{named(doc)}: {room:.0f} bytes of disk, the plan says {role['disk_bytes']}"
        if doc["kind"] == "StatefulSet" and doc["spec"]["replicas"] != role["count"]:
            yield f"{named(doc)}: {doc['spec']['replicas']} of them, the plan is for {role['count']}"


def check_security(docs):
    for doc, _, spec in pods(docs):
        context = spec.get("securityContext", {})
        if not context.get("runAsNonRoot") or context.get("runAsUser", 0) == 0:
            yield f"{named(doc)}: may run as root"
        if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{named(doc)}: has no seccomp profile"
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{named(doc)}: gets a token of the API server"
        for container in containers(spec):
            inner = container.get("securityContext", {})
            if inner.get("allowPrivilegeEscalation") is not False:
                yield f"{named(doc)}: {container['name']} may gain privileges"
            if inner.get("readOnlyRootFilesystem") is not True:
                yield f"{named(doc)}: {container['name']} can write to its root"
            if inner.get("capabilities", {}).get("drop") != ["ALL"]:
                yield f"{named(doc)}: {container['name']} keeps capabilities"


def check_probes(docs, http_only=False):
    for doc, labels, spec in pods(docs):
        if doc["kind"] not in ("StatefulSet", "Deployment"):
            continue
        for container in spec["containers"]:
            for probe in PROBES:
                asked = container.get(probe, {})
                live = probe != "readinessProbe"
                http = asked.get("httpGet", {}).get("path")
                grpc = asked.get("grpc")
                if (http is None) == (grpc is None):
                    yield f"{named(doc)}: {probe} is asked in no way, or in two"
                elif grpc is not None and (grpc.get("service") == "live") != live:
                    yield f"{named(doc)}: {probe} asks for {grpc.get('service', 'all services')}"
                elif http is not None and http != ("/healthz" if live else "/readyz"):
                    yield f"{named(doc)}: {probe} asks for {http}"
                if http_only and grpc is not None:
                    yield f"{named(doc)}: {probe} by gRPC cannot work here"


def check_ends(docs):
    """Trainers hand back within their grace period, and the servers wait for that."""
    [trainer] = [spec for _, labels, spec in pods(docs) if labels.get(COMPONENT) == "trainer"]
    grace = float(flags_of(trainer["containers"][0])["--grace"])
    if trainer["terminationGracePeriodSeconds"] < grace + 10:
        yield f"trainer: terminationGracePeriodSeconds leaves nothing beside --grace={grace:.0f}"
    for doc, labels, spec in pods(docs):
        if labels.get(COMPONENT) not in SERVERS:
            continue
        stop = spec["containers"][0].get("lifecycle", {}).get("preStop", {}).get("exec", {})
        words = stop.get("command", ["sleep", "0"])
        if words[0] != "sleep" or float(words[1]) <= grace:
            yield f"{named(doc)}: may end before trainers have handed back"
        # The drain takes 10 seconds at most.
        if spec["terminationGracePeriodSeconds"] < float(words[1]) + 15:
            yield f"{named(doc)}: terminationGracePeriodSeconds is too short for preStop and drain"


def check_param_servers(docs):
    counts = {labels[COMPONENT]: (doc, spec) for doc, labels, spec in pods(docs)
              if labels.get(COMPONENT) in SERVERS}
    told = flags_of(counts["lock-server"][1]["containers"][0]).get("--param-servers")
    if told != str(counts["param-server"][0]["spec"]["replicas"]):
        yield f"--param-servers={told}, but the StatefulSet has another number of replicas"


def check_images(docs, version):
    for doc, _, spec in pods(docs):
        for container in containers(spec):
            name, _, tag = container["image"].rpartition(":")
            base = name.rpartition("/")[2]
            if tag != version or base not in ("weft-servers", "weft-all"):
                yield f"{named(doc)}: image {container['image']}; the version is {version}"
            wanted = "weft-servers" if container["command"][0] in (
                "weft-lock-server", "weft-partition-server", "weft-param-server") else "weft-all"
            if base != wanted:
                yield f"{named(doc)}: {container['command'][0]} is in {wanted}, not in {base}"


def reaches(peers, labels, foreign):
    """Whether a pod (of another namespace if `foreign`) is one of a policy's peers."""
    return any(selects(peer.get("podSelector", {}).get("matchLabels"), labels) and
               (not foreign or "namespaceSelector" in peer) for peer in peers)


def allows(policies, labels, direction, peer, foreign, port, number):
    of_pod = [doc["spec"] for doc in policies if direction in doc["spec"]["policyTypes"] and
              selects(doc["spec"]["podSelector"].get("matchLabels"), labels)]
    if not of_pod:
        return True
    key, side = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
    return any(reaches(rule[side], peer, foreign) and
               any(entry["port"] in (port, number) for entry in rule["ports"])
               for spec in of_pod for rule in spec.get(key, []) if side in rule)


def check_network(docs, elsewhere=()):
    """What the policies let through is exactly ARROWS, and names for everybody."""
    policies = of_kind(docs, "NetworkPolicy")
    found = set()
    made = {labels[COMPONENT]: (labels, spec) for _, labels, spec in pods(list(docs) + list(elsewhere))}
    made["prometheus"] = ({APP: "prometheus"}, None)
    made["stranger"] = ({APP: "stranger"}, None)
    for caller, (labels, spec) in made.items():
        foreign = spec is None
        for called, (others, other_spec) in made.items():
            for port, number in port_names(other_spec).items() if other_spec else ():
                out = foreign or allows(policies, labels, "Egress", others, False, port, number)
                if out and allows(policies, others, "Ingress", labels, foreign, port, number):
                    found.add((caller, called, port))
    for caller, called, port in sorted(found - ARROWS):
        yield f"policies: {caller} may call {called} at {port}"
    for caller, called, port in sorted(ARROWS - found):
        yield f"policies: {caller} cannot call {called} at {port}"
    names = [doc["spec"] for doc in policies
             if doc["spec"]["podSelector"].get("matchLabels") == {APP: "weft"} and any(
                 {"port": 53, "protocol": "UDP"} in rule["ports"] and "to" not in rule
                 for rule in doc["spec"].get("egress", []))]
    if len(names) != 1:
        yield "policies: names cannot be asked for"


def run_configs(docs):
    """(name, text) of every configuration of a run."""
    return [(named(doc), doc["data"]["run.json"]) for doc in of_kind(docs, "ConfigMap")
            if "run.json" in doc.get("data", {})]


def check_run_config(docs, config_problems):
    """`config_problems`: text of a configuration to what weft config check says of it."""
    found = run_configs(docs)
    if len(found) != 1:
        yield f"there are {len(found)} run configurations"
    for name, text in found:
        try:
            json.loads(text)
        except ValueError as error:
            yield f"{name}: {error}"
            continue
        yield from (f"{name}: {problem}" for problem in config_problems(text))


def check_commands(docs, help_of):
    """`help_of`: words of a program and its subcommands to the flags that it knows (None: no program)."""
    for doc, _, spec in pods(docs):
        for container in containers(spec):
            words = container["command"] + container.get("args", [])
            if words[0] in ("sh", "sleep"):
                continue
            known, given = help_of(words)
            if known is None:
                yield f"{named(doc)}: {shlex.join(words[:3])}: no such program or command"
                continue
            for word in given:
                if word.startswith("-") and word.partition("=")[0] not in known:
                    yield f"{named(doc)}: {words[0]} does not know {word.partition('=')[0]}"
                elif word.startswith("-") and bool(word.partition("=")[1]) != known[
                        word.partition("=")[0]]:
                    yield f"{named(doc)}: {words[0]}: {word}: with a value, or without?"
