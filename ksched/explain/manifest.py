"""A pod that does not exist yet, from a manifest; with what the API server would fill in."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml

from ksched.api.decoding import decode_list, decode_pod
from ksched.api.objects import Pod
from ksched.api.resources import ApiResource
from ksched.client.rest import ApiClient
from ksched.errors import ConfigError

PRIORITY_CLASSES: Final = ApiResource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False
)
UID: Final = "of-a-manifest"
_OWN_TEMPLATE: Final = frozenset(
    ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet")
)


async def read_manifest(path: str, namespace: str, client: ApiClient) -> Pod:
    """Read the first pod, or the pod template of the first workload, of a YAML or JSON file.

    Its priority is that of its PriorityClass, a request without a value is the limit, as if the API
    server had admitted it. Raises ``ConfigError``, or ``ApiError`` if classes cannot be read.
    """
    manifest = _load(path)
    is_pod = manifest.get("kind") == "Pod"
    content = manifest if is_pod else manifest["spec"]["template"]
    meta = {**manifest.get("metadata", {}), **(content.get("metadata") or {}), "uid": UID}
    meta.setdefault("name", meta.get("generateName", "pod"))
    meta["namespace"] = meta.get("namespace") or namespace
    spec = dict(content.get("spec") or {})
    for container in [*spec.get("containers", []), *(spec.get("initContainers") or [])]:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        container["resources"] = {"limits": limits, "requests": {**limits, **requests}}
    if spec.get("priority") is None:
        spec["priority"] = await _priority(spec.get("priorityClassName", ""), client)
    return decode_pod(msgspec.json.encode({"metadata": meta, "spec": spec}))


def _load(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            documents = [one for one in yaml.safe_load_all(file) if isinstance(one, dict)]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise ConfigError([f"-f: cannot read {path}: {problem}"]) from problem
    kinds = [str(one.get("kind")) for one in documents]
    for kind, document in zip(kinds, documents, strict=True):
        if kind == "Pod" or (kind in _OWN_TEMPLATE and _has_template(document)):
            return document
    found = ", ".join(kinds) or "nothing"
    raise ConfigError([f"-f: {path} has {found}, wanted a Pod or a workload with a pod template"])


def _has_template(document: dict[str, Any]) -> bool:
    spec = document.get("spec")
    return isinstance(spec, dict) and isinstance(spec.get("template"), dict)


async def _priority(name: str, client: ApiClient) -> int:
    page = decode_list(await client.request("GET", PRIORITY_CLASSES.path()))
    default = 0
    for item in page.items:
        known = msgspec.json.decode(item)
        if known["metadata"]["name"] == name:
            return int(known["value"])
        if known.get("globalDefault"):
            default = int(known["value"])
    if name:
        raise ConfigError([f"-f: no PriorityClass is named {name}"])
    return default
