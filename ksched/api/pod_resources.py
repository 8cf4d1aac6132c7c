"""Resource requests of pods, and the classification of resource names.

Amounts are integers from 0 to the largest int64: cpu in thousandths of a core, everything else in
units (bytes, pieces). Sums are exact and rounded up once, at the end. An absent name was not
requested; an explicit zero stays. Follows ``component-helpers/resource: PodRequests`` and
``framework: calculateResource`` (v1.36).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from ksched.api.label_syntax import DNS_SUBDOMAIN_PATTERN, NAME_PATTERN
from ksched.api.objects import Container, Pod, PodSpec, Quantities
from ksched.api.quantity import millis_from_nanos, to_nanos, units_from_nanos
from ksched.errors import InvalidObject

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
HUGEPAGES_PREFIX = "hugepages-"
ATTACHABLE_VOLUMES_PREFIX = "attachable-volumes-"

DEFAULT_MILLI_CPU_REQUEST = 100
DEFAULT_MEMORY_REQUEST = 200 * 1024 * 1024

Nanos: TypeAlias = dict[str, int]
"""Exact amounts by resource name, in nano units."""

_CPU_AND_MEMORY = (CPU, MEMORY)

_DEFAULT_REQUESTS: Nanos = {
    CPU: DEFAULT_MILLI_CPU_REQUEST * 10**6,
    MEMORY: DEFAULT_MEMORY_REQUEST * 10**9,
}


# -- names ---------------------------------------------------------------------------------------


# The quota of an extended resource is called "requests." and its name, within 253 characters.
_EXTENDED = (
    r"(?!requests\.)(?!.*kubernetes\.io/)"
    rf"(?=[^/]{{1,{253 - len('requests.')}}}/){DNS_SUBDOMAIN_PATTERN}/{NAME_PATTERN}"
)
_EXTENDED_NAME = re.compile(_EXTENDED, re.ASCII | re.DOTALL)
_SCALAR_NAME = re.compile(
    rf"{HUGEPAGES_PREFIX}.*|{ATTACHABLE_VOLUMES_PREFIX}.*|.*kubernetes\.io/.*|{_EXTENDED}",
    re.ASCII | re.DOTALL,
)


def is_extended_resource_name(name: str) -> bool:
    """Whether the name is a vendor's: ``vendor.example/thing``."""
    return _EXTENDED_NAME.fullmatch(name) is not None


def is_scalar_resource_name(name: str) -> bool:
    """Whether nodes account for the name besides cpu, memory, ephemeral-storage and pods."""
    return _SCALAR_NAME.fullmatch(name) is not None


def scalar_resource_names(names: Iterable[str]) -> list[str]:
    """Filter names by ``is_scalar_resource_name``; there may be tens of thousands."""
    return list(filter(_SCALAR_NAME.fullmatch, names))


def is_supported_pod_level_resource(name: str) -> bool:
    """Whether ``spec.resources`` of a pod may set the name."""
    return name in (CPU, MEMORY) or name.startswith(HUGEPAGES_PREFIX)


# -- amounts -------------------------------------------------------------------------------------


def amounts(quantities: Quantities) -> dict[str, int]:
    """Convert a resource list (a node's allocatable) to amounts.

    Raises ``ValueError`` naming the resource whose quantity cannot be parsed.
    """
    return _rounded(_exact(quantities, "resources"))


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Return the requests of a pod with this spec: containers, pod-level requests, overhead.

    All names are included, also those no node accounts for. Raises ``ValueError`` naming container
    and resource if a quantity cannot be parsed.

    kube-scheduler: CalculateResource.
    """
    return _rounded(_total(spec, _spec_requests))


def exact_pod_requests(spec: PodSpec) -> Nanos:
    """Return the same as ``pod_requests``, not rounded."""
    return _total(spec, _spec_requests)


def exact_pod_limits(spec: PodSpec) -> Nanos:
    """Return the limits of a pod with this spec; overhead is added to limits that are set.

    kube-scheduler: PodLimits.
    """
    containers = msgspec.structs.replace(spec, overhead={}, resources=None)
    total = _total(containers, _spec_limits)
    if spec.resources is not None:
        for name, nanos in _exact(spec.resources.limits, "pod").items():
            if is_supported_pod_level_resource(name):
                total[name] = nanos
    for name, nanos in _exact(spec.overhead, "overhead").items():
        if total.get(name):
            total[name] += nanos
    return total


def pod_requests_with_status(pod: Pod) -> dict[str, int]:
    """Return what an assigned pod occupies, possibly during an in-place resize.

    The largest of desired, allocated and actual requests counts, so that a pending growth reserves
    resources; a growth that the kubelet declared infeasible does not. Raises ``InvalidObject``.
    """
    try:
        return _rounded(_total_with_status(pod))
    except ValueError as error:
        raise InvalidObject("Pod", pod.metadata.key, str(error)) from error


def non_missing_requests(spec: PodSpec) -> tuple[int, int]:
    """Return cpu and memory with a default for every container without requests.

    The resource scorers of NodeResourcesFit use this for the incoming pod. They ignore pod-level
    requests, although the filter honours them.

    kube-scheduler: getNonMissingContainerRequests.
    """
    cpu, memory = (_non_missing_total(spec, one) for one in _CPU_AND_MEMORY)
    return max(millis_from_nanos(cpu), 0), max(units_from_nanos(memory), 0)


def _non_missing_total(spec: PodSpec, resource: str) -> int:
    """Sum one resource as ``_total`` sums all; every container requests it, or has the default."""
    default = _DEFAULT_REQUESTS[resource]

    def request_of(container: Container) -> int:
        quantity = container.resources.requests.get(resource)
        return default if quantity is None else to_nanos(quantity)

    total = sum(map(request_of, spec.containers))
    sidecars = peak = 0
    for container in spec.init_containers:
        request = request_of(container)
        if is_restartable_init_container(container):
            total += request
            sidecars += request
        else:
            peak = max(peak, request + sidecars)
    overhead = spec.overhead.get(resource) if spec.overhead else None
    return max(total, peak) + (0 if overhead is None else to_nanos(overhead))


def non_missing_requests_with_status(pod: Pod) -> tuple[int, int]:
    """Return cpu and memory of an assigned pod with defaults (``NonZeroRequested`` of a node).

    With pod-level requests the defaults replace only what is absent from the pod's total. Raises
    ``InvalidObject``.
    """
    try:
        defaults = _DEFAULT_REQUESTS
        if has_pod_level_requests(pod.spec):
            total = _total_with_status(pod, only=_CPU_AND_MEMORY)
            defaults = {name: nanos for name, nanos in defaults.items() if name not in total}
        return _cpu_and_memory(_total_with_status(pod, defaults, only=_CPU_AND_MEMORY))
    except ValueError as error:
        raise InvalidObject("Pod", pod.metadata.key, str(error)) from error


def has_pod_level_requests(spec: PodSpec) -> bool:
    """Whether ``spec.resources`` overrides the requests of the containers."""
    if spec.resources is None:
        return False
    return any(is_supported_pod_level_resource(name) for name in spec.resources.requests)


def is_restartable_init_container(container: Container) -> bool:
    """Whether an init container is a sidecar, which runs as long as the pod."""
    return container.restart_policy == "Always"


# -- exact sums ----------------------------------------------------------------------------------


def _spec_requests(container: Container, only: Sequence[str] | None = None) -> Nanos:
    return _exact(container.resources.requests, "container", container.name, only)


def _spec_limits(container: Container) -> Nanos:
    return _exact(container.resources.limits, "container", container.name)


def _total(
    spec: PodSpec,
    requests_of: Callable[[Container], Nanos],
    *,
    defaults: Nanos | None = None,
    pod_level_requests: Nanos | None = None,
) -> Nanos:
    """Sum a pod: the larger of containers and init containers, and overhead."""

    def container_requests(container: Container) -> Nanos:
        requests = requests_of(container)
        return {**defaults, **requests} if defaults else requests

    total: Nanos = {}
    for container in spec.containers:
        requests = container_requests(container)
        if total:
            _add(total, requests)
        else:
            total = requests
    if spec.init_containers:
        _raise_to(total, _add_init_containers(total, spec.init_containers, container_requests))
    if has_pod_level_requests(spec):
        assert spec.resources is not None
        if pod_level_requests is None:
            pod_level_requests = _exact(spec.resources.requests, "pod")
        for name, nanos in pod_level_requests.items():
            if is_supported_pod_level_resource(name):
                total[name] = nanos
    if spec.overhead:
        _add(total, _exact(spec.overhead, "overhead"))
    return total


def _add_init_containers(
    total: Nanos, containers: Sequence[Container], requests_of: Callable[[Container], Nanos]
) -> Nanos:
    """Add the sidecars to ``total`` and return the peak while the init containers run in turn.

    Sidecars only accumulate, so those that run beside the last ordinary init container are the
    peak of what no init container requests itself; nothing is copied for the others.
    """
    ordinary = [
        index for index, one in enumerate(containers) if not is_restartable_init_container(one)
    ]
    last = ordinary[-1] if ordinary else -1
    sidecars: Nanos = {}
    peak: Nanos = {}
    for index, container in enumerate(containers):
        requests = requests_of(container)
        if is_restartable_init_container(container):
            _add(total, requests)
            _add(sidecars, requests)
            continue
        for name in requests:
            requests[name] += sidecars.get(name, 0)
        _raise_to(peak, requests)
        if index == last:
            _raise_to(peak, sidecars)
    return peak


def _total_with_status(
    pod: Pod, defaults: Nanos | None = None, only: Sequence[str] | None = None
) -> Nanos:
    infeasible = _is_resize_infeasible(pod)
    actual = _actual_requests(pod)

    def container_requests(container: Container) -> Nanos:
        floor = actual.get(container.name)
        if floor is None:
            return _spec_requests(container, only)
        requests = {} if infeasible else _spec_requests(container, only)
        _raise_to(requests, floor)
        return requests

    pod_level = None
    if pod.status.resources is not None and pod.spec.resources is not None:
        pod_level = {} if infeasible else _exact(pod.spec.resources.requests, "pod")
        _raise_to(pod_level, _exact(pod.status.resources.requests, "pod status"))
        _raise_to(pod_level, _exact(pod.status.allocated_resources, "pod status"))
    return _total(pod.spec, container_requests, defaults=defaults, pod_level_requests=pod_level)


def _actual_requests(pod: Pod) -> dict[str, Nanos]:
    """Return what the kubelet reports as in use or allocated, by container.

    Only containers that run as long as the pod can be resized, so ordinary init containers are not
    among them.
    """
    actual: dict[str, Nanos] = {}
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        if status.resources is not None:
            requests = _exact(status.resources.requests, "container status", status.name)
            _raise_to(requests, _exact(status.allocated_resources, "container status", status.name))
            actual[status.name] = requests
    for container in pod.spec.init_containers:
        if not is_restartable_init_container(container):
            actual.pop(container.name, None)
    return actual


def _is_resize_infeasible(pod: Pod) -> bool:
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _exact(
    quantities: Quantities, owner: str, name: str = "", only: Sequence[str] | None = None
) -> Nanos:
    """Return a fresh map of exact amounts, of some names or of all."""
    if not quantities:
        return {}
    if only is not None:
        quantities = {one: quantities[one] for one in only if one in quantities}
    try:
        return {resource: to_nanos(quantity) for resource, quantity in quantities.items()}
    except ValueError:
        owner_name = f"{owner} {name}" if name else owner
        for resource, quantity in quantities.items():
            try:
                to_nanos(quantity)
            except ValueError as error:
                raise ValueError(f"{owner_name}: {resource}: {error}") from None
        raise


def _add(total: Nanos, requests: Mapping[str, int]) -> None:
    for name, nanos in requests.items():
        total[name] = total.get(name, 0) + nanos


def _raise_to(total: Nanos, floor: Mapping[str, int]) -> None:
    for name, nanos in floor.items():
        if name not in total or nanos > total[name]:
            total[name] = nanos


def _rounded(total: Nanos) -> dict[str, int]:
    return {
        name: max(millis_from_nanos(nanos) if name == CPU else units_from_nanos(nanos), 0)
        for name, nanos in total.items()
    }


def _cpu_and_memory(total: Nanos) -> tuple[int, int]:
    cpu, memory = total.get(CPU, 0), total.get(MEMORY, 0)
    return max(millis_from_nanos(cpu), 0), max(units_from_nanos(memory), 0)
