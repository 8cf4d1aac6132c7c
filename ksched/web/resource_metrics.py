"""``/metrics/resources``: what pods request and are limited to, as scheduler and kubelet count it.

Written line by line instead of through a metric per pod: a cluster has hundreds of thousands.

kube-scheduler: podResourceCollector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client.utils import floatToGoString

from ksched.api.objects import Pod, PodSpec
from ksched.api.pod_resources import (
    ATTACHABLE_VOLUMES_PREFIX,
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    Nanos,
    exact_pod_limits,
    exact_pod_requests,
)
from ksched.api.quantity import NANOS

_REQUEST: Final = (
    b"# HELP kube_pod_resource_request Resources that a pod requests, as scheduler and kubelet "
    b"count them.\n# TYPE kube_pod_resource_request gauge\n"
)
_LIMIT: Final = (
    b"# HELP kube_pod_resource_limit Resources that a pod is limited to, as scheduler and kubelet "
    b"count them.\n# TYPE kube_pod_resource_limit gauge\n"
)
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_BYTES: Final = frozenset({MEMORY, EPHEMERAL_STORAGE, "storage"})


class _Amount(NamedTuple):
    resource: str
    unit: str
    value: str


def resource_pieces(pods: Sequence[Pod]) -> Iterator[bytes]:
    """Yield the page in pieces."""
    yield from _family(pods, "kube_pod_resource_request", _REQUEST, exact_pod_requests)
    yield from _family(pods, "kube_pod_resource_limit", _LIMIT, exact_pod_limits)


def _family(
    pods: Sequence[Pod], name: str, head: bytes, amounts_of: Callable[[PodSpec], Nanos]
) -> Iterator[bytes]:
    yield head
    # Pods of one template share these parts of their specs. The spec is kept with the amounts, so
    # that its parts live as long as their ids are used.
    amounts: dict[tuple[int, ...], tuple[list[_Amount], PodSpec]] = {}
    for pod in pods:
        spec = pod.spec
        parts = (spec.containers, spec.init_containers, spec.overhead, spec.resources)
        key = tuple(map(id, parts))
        if key not in amounts:
            amounts[key] = _amounts(spec, amounts_of), spec
        if found := amounts[key][0]:
            yield _lines(name, pod, found)


def _amounts(spec: PodSpec, amounts_of: Callable[[PodSpec], Nanos]) -> list[_Amount]:
    """Return the amounts without zeros; none if a quantity cannot be read."""
    try:
        found = amounts_of(spec)
    except ValueError:
        return []
    return [
        _Amount(_escaped(resource), unit_of(resource), _number(nanos))
        for resource, nanos in found.items()
        if nanos
    ]


def _lines(name: str, pod: Pod, amounts: list[_Amount]) -> bytes:
    spec, metadata = pod.spec, pod.metadata
    priority = "" if spec.priority is None else spec.priority
    of_pod = (
        f'namespace="{_escaped(metadata.namespace)}",node="{_escaped(spec.node_name)}",'
        f'pod="{_escaped(metadata.name)}",priority="{priority}"'
    )
    scheduler = _escaped(spec.scheduler_name)
    return "".join(
        f'{name}{{{of_pod},resource="{resource}",scheduler="{scheduler}",unit="{unit}"}} {value}\n'
        for resource, unit, value in amounts
    ).encode()


def unit_of(resource: str) -> str:
    """Return the unit of an amount; empty where Kubernetes names none."""
    if resource == CPU:
        return "cores"
    if resource in _BYTES or resource.startswith(HUGEPAGES_PREFIX):
        return "bytes"
    return "integer" if resource.startswith(ATTACHABLE_VOLUMES_PREFIX) else ""


def _number(nanos: int) -> str:
    text: str = floatToGoString(nanos / NANOS)  # type: ignore[no-untyped-call]
    return text


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)
