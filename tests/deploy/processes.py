"""Runs the containers of rendered manifests as processes of this machine: their own command lines and environment,
with loopback in place of the pod's network and folders below `folder` in place of volumes."""

import pathlib
import re
import shlex
import signal
import socket
import subprocess
import urllib.error
import urllib.request

from k8s_checks import COMPONENT, port_names


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Pod:
    """One pod of a document: the n-th of a StatefulSet, a Deployment, or that of a Job."""

    def __init__(self, doc, number=None):
        template = doc if doc["kind"] == "Pod" else doc["spec"]["template"]
        self.name = doc["metadata"]["name"] + ("" if number is None else f"-{number}")
        self.namespace = doc["metadata"].get("namespace", "default")
        self.component = template["metadata"]["labels"][COMPONENT]
        self.spec = template["spec"]
        self.service = doc["spec"].get("serviceName")
        self.ports = {number: free_port() for number in port_names(self.spec).values()}
        self.metrics = self.ports.get(port_names(self.spec).get("metrics"))


class Processes:
    """Ends what it started."""

    def __init__(self, programs, folder, pods, services):
        self.programs, self.folder = pathlib.Path(programs), pathlib.Path(folder)
        self.running = []
        self.addresses = {}
        for pod in pods:
            for port, here in pod.ports.items():
                self.addresses[f"{pod.name}.{pod.service}.{pod.namespace}.svc:{port}"] = here
        for doc in services:
            for pod in pods:
                if doc["spec"].get("clusterIP") != "None" and pod.service == doc["metadata"]["name"]:
                    for entry in doc["spec"]["ports"]:
                        port = port_names(pod.spec)[entry["targetPort"]]
                        self.addresses[f"{doc['metadata']['name']}:{entry['port']}"] = pod.ports[port]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()

    def text(self, pod, text):
        """What stands in a manifest, as it is here."""
        for name, value in (("POD_NAME", pod.name), ("POD_NAMESPACE", pod.namespace)):
            text = text.replace(f"$({name})", value)
        for address, here in sorted(self.addresses.items(), key=lambda entry: -len(entry[0])):
            text = text.replace(address, f"127.0.0.1:{here}")
        for port, here in pod.ports.items():
            text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:{here}")
        text = text.replace("/var/lib/weft", str(self.folder / pod.name))
        for volume in pod.spec.get("volumes", []):
            if "secret" in volume:
                text = text.replace("/etc/weft-tls",
                                    str(self.folder / "secrets" / volume["secret"]["secretName"]))
        return re.sub(r"(^|[=\s\"])/(data|etc/weft)\b", rf"\g<1>{self.folder}/\2", text)

    def command(self, pod, container):
        words = [self.text(pod, word) for word in container["command"] + container.get("args", [])]
        return [str(self.programs / words[0]) if words[0].startswith("weft") else words[0]] + words[1:]

    def start(self, pod):
        words = self.command(pod, pod.spec["containers"][0])
        with open(self.folder / f"{pod.name}.log", "a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(words)}\n")
            log.flush()
            process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)
        self.running.append(process)
        return process

    def run_container(self, pod, container):
        done = subprocess.run(self.command(pod, container), capture_output=True, text=True,
                              cwd=self.folder)
        if done.returncode != 0:
            raise RuntimeError(f"{pod.name}: {container['name']}: {done.stdout}{done.stderr}")
        return done.stdout

    def run_first(self, pod):
        """Runs the containers that a Job begins with."""
        for container in pod.spec.get("initContainers", []):
            self.run_container(pod, container)

    def run(self, pod):
        """Runs a Job. What it printed."""
        self.run_first(pod)
        return self.run_container(pod, pod.spec["containers"][0])

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def http(port, path):
    """(code, text); (None, why) when nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return None, str(error)


def stop(process, seconds=60):
    process.send_signal(signal.SIGTERM)
    return process.wait(seconds)
