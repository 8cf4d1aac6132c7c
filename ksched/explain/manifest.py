"""A pod that does not exist yet, from a manifest; with what the API server would fill in."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace

from ksched.api.decoding import decode_list, decode_pod
from ksched.api.objects import Container, Pod
from ksched.api.resources import ApiResource
from ksched.client.rest import ApiClient
from ksched.errors import ConfigError, InvalidObject

PRIORITY_CLASSES: Final = ApiResource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False
)
UID: Final = "of-a-manifest"
_OF_WORKLOAD: Final = ("name", "namespace")
_OF_POD: Final = ("name", "namespace", "labels", "annotations")
_OWN_TEMPLATE: Final = frozenset(
    ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet")
)


async def read_manifest(path: str, namespace: str, client: ApiClient) -> Pod:
    """Read the first pod, or the pod template of the first workload, of a YAML or JSON file.

    Its priority is that of its PriorityClass, a request without a value is the limit, as if the API
    server had admitted it. Raises ``ConfigError``, or ``ApiError`` if classes cannot be read.
    """
    try:
        return await pod_of(_load(path), namespace, client)
    except InvalidObject as problem:
        raise ConfigError([f"-f: {path}: {problem}"]) from problem


async def pod_of(manifest: dict[str, Any], namespace: str, client: ApiClient) -> Pod:
    """The same for a Pod, or a workload with a pod template, that was read already."""
    is_pod = manifest.get("kind") == "Pod"
    content = manifest if is_pod else manifest["spec"]["template"]
    meta: dict[str, Any] = {"uid": UID, "name": "pod", "namespace": namespace}
    for owner, keys in ((manifest, _OF_WORKLOAD), (content, _OF_POD)):
        known = owner.get("metadata")
        if isinstance(known, dict):
            meta |= {key: known[key] for key in keys if known.get(key)}
    wanted = content.get("spec") or {}
    pod = decode_pod(msgspec.json.encode({"metadata": meta, "spec": wanted}))
    spec, priority = pod.spec, pod.spec.priority
    if priority is None:
        priority = await _priority(wanted.get("priorityClassName") or "", client)
    spec = replace(
        spec,
        containers=[_with_requests(one) for one in spec.containers],
        init_containers=[_with_requests(one) for one in spec.init_containers],
        priority=priority,
    )
    return replace(pod, spec=spec)


def _with_requests(container: Container) -> Container:
    resources = container.resources
    requests = {**resources.limits, **resources.requests}
    return replace(container, resources=replace(resources, requests=requests))


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
