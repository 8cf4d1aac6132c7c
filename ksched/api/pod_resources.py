"""Resource requests of pods, and the classification of resource names.

Amounts are integers from 0 to the largest int64: cpu in thousandths of a core, everything else in
units (bytes, pieces). Sums are exact and rounded up once, at the end. An absent name was not
requested; an explicit zero stays. Follows ``component-helpers/resource: PodRequests`` and
``framework: calculateResource`` (v1.36).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from ksched.api.label_syntax import DNS_SUBDOMAIN_PATTERN, NAME_PATTERN
from ksched.api.large_pods import facts_of
from ksched.api.objects import Container, ObjectMeta, Pod, PodSpec, Quantities
from ksched.api.quantity import millis_from_nanos, to_nanos, units_from_nanos
from ksched.errors import InvalidObject
from ksched.steps import Steps, at_once

T = TypeVar("T")

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

_CONTAINERS_PER_STEP = 256
"""Summed in about a millisecond."""

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
    return dict(at_once(_request_steps(spec)))


def exact_pod_requests(spec: PodSpec) -> Nanos:
    """Return the same as ``pod_requests``, not rounded."""
    return at_once(_total(spec, _spec_requests))


def exact_pod_limits(spec: PodSpec) -> Nanos:
    """Return the limits of a pod with this spec; overhead is added to limits that are set.

    kube-scheduler: PodLimits.
    """
    containers = msgspec.structs.replace(spec, overhead={}, resources=None)
    total = at_once(_total(containers, _spec_limits))
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
        return dict(at_once(_request_steps_with_status(pod)))
    except ValueError as error:
        raise InvalidObject("Pod", pod.metadata.key, str(error)) from error


def non_missing_requests(spec: PodSpec) -> tuple[int, int]:
    """Return cpu and memory with a default for every container without requests.

    The resource scorers of NodeResourcesFit use this for the incoming pod. They ignore pod-level
    requests, although the filter honours them.

    kube-scheduler: getNonMissingContainerRequests.
    """
    return at_once(_non_missing_steps(spec))


def non_missing_requests_with_status(pod: Pod) -> tuple[int, int]:
    """Return cpu and memory of an assigned pod with defaults (``NonZeroRequested`` of a node).

    With pod-level requests the defaults replace only what is absent from the pod's total. Raises
    ``InvalidObject``.
    """
    try:
        return at_once(_non_missing_steps_with_status(pod))
    except ValueError as error:
        raise InvalidObject("Pod", pod.metadata.key, str(error)) from error


def container_requests(spec: PodSpec) -> dict[str, int]:
    """Return the same as ``pod_requests`` without pod-level requests."""
    return dict(at_once(_container_request_steps(spec)))


def sum_steps(pod: Pod) -> Steps[None]:
    """Compute in steps what the functions above return for a large pod, so that they know it."""
    spec = pod.spec
    try:
        if facts_of(spec) is not None:
            yield from _request_steps(spec)
            yield from _non_missing_steps(spec)
            yield from _container_request_steps(spec)
            if has_pod_level_requests(spec):
                yield from _non_missing_steps_with_status(Pod(metadata=ObjectMeta(), spec=spec))
        if facts_of(pod) is not None:
            yield from _request_steps_with_status(pod)
            yield from _non_missing_steps_with_status(pod)
    except ValueError:
        # Reported where the sums are read.
        return


def has_pod_level_requests(spec: PodSpec) -> bool:
    """Whether ``spec.resources`` overrides the requests of the containers."""
    if spec.resources is None:
        return False
    return any(is_supported_pod_level_resource(name) for name in spec.resources.requests)


def has_own_sums(pod: Pod) -> bool:
    """Whether what a pod occupies follows from its status too."""
    status = pod.status
    return bool(
        status.container_statuses
        or status.init_container_statuses
        or status.resources is not None
        or status.allocated_resources
    )


def is_restartable_init_container(container: Container) -> bool:
    """Whether an init container is a sidecar, which runs as long as the pod."""
    return container.restart_policy == "Always"


# -- exact sums ----------------------------------------------------------------------------------


def _spec_requests(container: Container, only: Sequence[str] | None = None) -> Nanos:
    return _exact(container.resources.requests, "container", container.name, only)


def _spec_limits(container: Container) -> Nanos:
    return _exact(container.resources.limits, "container", container.name)


def _once(owner: Pod | PodSpec, name: str, compute: Callable[[], Steps[T]]) -> Steps[T]:
    """Compute something of a pod or spec; a large one keeps it."""
    facts = facts_of(owner)
    if facts is None:
        return (yield from compute())
    if name not in facts:
        facts[name] = yield from compute()
    found: T = facts[name]
    return found


def _request_steps(spec: PodSpec) -> Steps[Mapping[str, int]]:
    return _once(spec, "requests", lambda: _rounded_steps(_total(spec, _spec_requests)))


def _container_request_steps(spec: PodSpec) -> Steps[Mapping[str, int]]:
    if spec.resources is None:
        return _request_steps(spec)
    containers = msgspec.structs.replace(spec, resources=None)
    total = _total(containers, _spec_requests)
    return _once(spec, "container requests", lambda: _rounded_steps(total))


def _request_steps_with_status(pod: Pod) -> Steps[Mapping[str, int]]:
    if not has_own_sums(pod):
        return _request_steps(pod.spec)
    return _once(pod, "requests", lambda: _rounded_steps(_total_with_status(pod)))


def _rounded_steps(total: Steps[Nanos]) -> Steps[Mapping[str, int]]:
    return _rounded((yield from total))


def _non_missing_steps(spec: PodSpec) -> Steps[tuple[int, int]]:
    return _once(spec, "non-missing", lambda: _non_missing(spec))


def _non_missing(spec: PodSpec) -> Steps[tuple[int, int]]:
    cpu = yield from _non_missing_total(spec, CPU)
    memory = yield from _non_missing_total(spec, MEMORY)
    return max(millis_from_nanos(cpu), 0), max(units_from_nanos(memory), 0)


def _non_missing_steps_with_status(pod: Pod) -> Steps[tuple[int, int]]:
    owner = pod if has_own_sums(pod) else pod.spec
    return _once(owner, "non-missing with status", lambda: _non_missing_with_status(pod))


def _non_missing_with_status(pod: Pod) -> Steps[tuple[int, int]]:
    defaults = _DEFAULT_REQUESTS
    if has_pod_level_requests(pod.spec):
        total = yield from _total_with_status(pod, only=_CPU_AND_MEMORY)
        defaults = {name: nanos for name, nanos in defaults.items() if name not in total}
    total = yield from _total_with_status(pod, defaults, only=_CPU_AND_MEMORY)
    return _cpu_and_memory(total)


def _non_missing_total(spec: PodSpec, resource: str) -> Steps[int]:
    """Sum one resource as ``_total`` sums all; every container requests it, or has the default."""
    default = _DEFAULT_REQUESTS[resource]

    def request_of(container: Container) -> int:
        quantity = container.resources.requests.get(resource)
        return default if quantity is None else to_nanos(quantity)

    total = sidecars = peak = 0
    for number, container in enumerate(spec.containers, 1):
        total += request_of(container)
        if not number % _CONTAINERS_PER_STEP:
            yield
    for number, container in enumerate(spec.init_containers, 1):
        request = request_of(container)
        if is_restartable_init_container(container):
            total += request
            sidecars += request
        else:
            peak = max(peak, request + sidecars)
        if not number % _CONTAINERS_PER_STEP:
            yield
    overhead = spec.overhead.get(resource) if spec.overhead else None
    return max(total, peak) + (0 if overhead is None else to_nanos(overhead))


def _total(
    spec: PodSpec,
    requests_of: Callable[[Container], Nanos],
    *,
    defaults: Nanos | None = None,
    pod_level_requests: Nanos | None = None,
) -> Steps[Nanos]:
    """Sum a pod: the larger of containers and init containers, and overhead."""

    def container_requests(container: Container) -> Nanos:
        requests = requests_of(container)
        return {**defaults, **requests} if defaults else requests

    total: Nanos = {}
    for number, container in enumerate(spec.containers, 1):
        requests = container_requests(container)
        if total:
            _add(total, requests)
        else:
            total = requests
        if not number % _CONTAINERS_PER_STEP:
            yield
    if spec.init_containers:
        peak = yield from _add_init_containers(total, spec.init_containers, container_requests)
        _raise_to(total, peak)
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
) -> Steps[Nanos]:
    """Add the sidecars to ``total`` and return the peak while the init containers run in turn.

    Sidecars only accumulate, so those that run beside the last ordinary init container are the
    peak of what no init container requests itself; nothing is copied for the others.
    """
    ordinary = (
        index
        for index in reversed(range(len(containers)))
        if not is_restartable_init_container(containers[index])
    )
    last = next(ordinary, -1)
    sidecars: Nanos = {}
    peak: Nanos = {}
    for index, container in enumerate(containers):
        if index and not index % _CONTAINERS_PER_STEP:
            yield
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
) -> Steps[Nanos]:
    infeasible = _is_resize_infeasible(pod)
    actual = yield from _actual_requests(pod)

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
    return (
        yield from _total(
            pod.spec, container_requests, defaults=defaults, pod_level_requests=pod_level
        )
    )


def _actual_requests(pod: Pod) -> Steps[dict[str, Nanos]]:
    """Return what the kubelet reports as in use or allocated, by container.

    Only containers that run as long as the pod can be resized, so ordinary init containers are not
    among them.
    """
    actual: dict[str, Nanos] = {}
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    for number, status in enumerate(statuses, 1):
        if status.resources is not None:
            requests = _exact(status.resources.requests, "container status", status.name)
            _raise_to(requests, _exact(status.allocated_resources, "container status", status.name))
            actual[status.name] = requests
        if not number % _CONTAINERS_PER_STEP:
            yield
    for number, container in enumerate(pod.spec.init_containers if actual else (), 1):
        if not is_restartable_init_container(container):
            actual.pop(container.name, None)
        if not number % _CONTAINERS_PER_STEP:
            yield
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
