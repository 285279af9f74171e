"""Renders kustomizations: the part of kustomize that deploy/k8s uses. scripts/check_deploy holds it against
kubectl's own; here nothing but Python is needed. What it does not know it refuses."""

import copy
import pathlib
import re

import yaml

KNOWN = {"apiVersion", "kind", "namespace", "resources", "components", "configMapGenerator",
         "generatorOptions", "images", "patches"}
# By what the entries of a list are told apart in a strategic merge; other lists are replaced.
MERGE_KEYS = {"containers": "name", "initContainers": "name", "volumes": "name", "env": "name",
              "volumeMounts": "mountPath", "ports": "containerPort"}


class StrictLoader(yaml.SafeLoader):
    """Refuses keys that are there twice."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is there twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_all(text, name):
    try:
        return [doc for doc in yaml.load_all(text, StrictLoader) if doc is not None]
    except yaml.YAMLError as error:
        raise ValueError(f"{name}: {error}") from error


def load_file(path):
    return load_all(path.read_text(encoding="utf-8"), path)


def merge(target, patch):
    """A strategic merge of `patch` into `target`."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            merge(target[key], value)
        elif isinstance(value, list) and key in MERGE_KEYS and isinstance(target.get(key), list):
            by = MERGE_KEYS[key]
            fresh = []
            for entry in value:
                same = [old for old in target[key] if old[by] == entry[by]]
                if same:
                    merge(same[0], entry)
                else:
                    fresh.append(copy.deepcopy(entry))
            target[key] = fresh + target[key]
        else:
            target[key] = copy.deepcopy(value)


def apply_json_patch(target, operations):
    for operation in operations:
        *parents, last = operation["path"].lstrip("/").split("/")
        place = target
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if isinstance(place, list):
            last = len(place) if last == "-" else int(last)
        value = copy.deepcopy(operation.get("value"))
        kind = operation["op"]
        if kind == "test":
            if place[last] != value:
                raise ValueError(f"{operation['path']} is {place[last]!r}, not {value!r}")
        elif kind == "remove":
            del place[last]
        elif kind == "replace":
            place[last]  # must be there
            place[last] = value
        elif kind == "add" and isinstance(place, list):
            place.insert(last, value)
        elif kind == "add":
            place[last] = value
        else:
            raise ValueError(f"JSON patch: unknown op {kind!r}")


def matches(target, doc):
    """A target's fields are patterns, as in kustomize."""
    return (re.fullmatch(target.get("kind", ".*"), doc["kind"]) is not None and
            re.fullmatch(target.get("name", ".*"), doc["metadata"]["name"]) is not None)


def apply_patch(docs, entry, folder):
    text = entry["patch"] if "patch" in entry else (folder / entry["path"]).read_text("utf-8")
    for patch in load_all(text, entry.get("path", f"a patch in {folder}")):
        if isinstance(patch, list):
            target = entry["target"]
        else:
            target = entry.get("target", {"kind": patch["kind"], "name": patch["metadata"]["name"]})
        found = [doc for doc in docs if matches(target, doc)]
        if not found:
            raise ValueError(f"{folder}: no resource for the patch of {target}")
        for doc in found:
            if isinstance(patch, list):
                apply_json_patch(doc, patch)
            else:
                merge(doc, patch)


def generate_config_map(docs, entry, options, folder):
    data = {}
    for name in entry["files"]:
        key, _, path = name.rpartition("=")
        data[key or pathlib.Path(path).name] = (folder / path).read_text("utf-8")
    if not options.get("disableNameSuffixHash"):
        raise ValueError(f"{folder}: names of ConfigMaps must stay the same")
    if entry.get("behavior") == "replace":
        [old] = [d for d in docs if d["kind"] == "ConfigMap" and d["metadata"]["name"] == entry["name"]]
        old["data"] = data
        return
    labels = {**options.get("labels", {}), **entry.get("options", {}).get("labels", {})}
    docs.append({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
                 "metadata": {"name": entry["name"], **({"labels": labels} if labels else {})}})


def pod_specs(doc):
    """The pod template of a document, as a list of one or none."""
    if doc["kind"] == "Pod":
        return [doc]
    template = (doc.get("spec") or {}).get("template")
    return [template] if isinstance(template, dict) else []


def set_images(docs, images):
    for doc in docs:
        for pod in pod_specs(doc):
            for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]:
                name, _, tag = container["image"].partition(":")
                for image in images:
                    if image["name"] == name:
                        container["image"] = (image.get("newName", name) + ":" +
                                              image.get("newTag", tag))


def render_into(docs, folder, overlay=True):
    [kustomization] = load_file(folder / "kustomization.yaml")
    unknown = set(kustomization) - KNOWN
    if unknown:
        raise ValueError(f"{folder}/kustomization.yaml: {', '.join(sorted(unknown))}?")
    if (kustomization["kind"] == "Kustomization") != overlay:
        raise ValueError(f"{folder}: a Component belongs to components")
    for name in kustomization.get("resources", []):
        path = folder / name
        if path.is_dir():
            docs.extend(render(path))
        else:
            docs.extend(load_file(path))
    options = kustomization.get("generatorOptions", {})
    for entry in kustomization.get("configMapGenerator", []):
        generate_config_map(docs, entry, options, folder)
    for name in kustomization.get("components", []):
        render_into(docs, folder / name, overlay=False)
    for entry in kustomization.get("patches", []):
        apply_patch(docs, entry, folder)
    if "namespace" in kustomization:
        for doc in docs:
            doc["metadata"]["namespace"] = kustomization["namespace"]
    set_images(docs, kustomization.get("images", []))


def render(folder):
    docs = []
    render_into(docs, folder.resolve())
    return docs
