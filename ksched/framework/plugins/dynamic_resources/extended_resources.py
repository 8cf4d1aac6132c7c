"""Extended resources that are backed by devices, and the claim created for them.

Follows dynamicresources/extendeddynamicresources.go (v1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ksched.api.devices import (
    EXACT_COUNT,
    EXTENDED_RESOURCE_CLAIM,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    shared_spec,
)
from ksched.api.objects import (
    Container,
    ContainerExtendedResourceRequest,
    ObjectMeta,
    OwnerReference,
    PodSpec,
)
from ksched.api.pod_resources import is_restartable_init_container, is_scalar_resource_name
from ksched.api.quantity import value
from ksched.devices.extended_resource_classes import ExtendedResourceClasses
from ksched.framework import PodInfo, PodTemplate

SPECIAL_CLAIM = "<extended-resources>"


class ExtendedRequests(NamedTuple):
    """The requests of a pod's claim on some nodes, and their containers."""

    spec: ResourceClaimSpec
    mappings: Sequence[ContainerExtendedResourceRequest]


NOTHING = ExtendedRequests(ResourceClaimSpec(), ())


def class_backed(template: PodTemplate, classes: ExtendedResourceClasses) -> tuple[str, ...]:
    """Return the requested resources that a device class backs, sorted."""
    requests = template.requests
    backed = classes.backed_among(requests.keys())
    return tuple(sorted(resource for resource in backed if requests[resource] > 0))


def other_scalars(template: PodTemplate, backed: Sequence[str]) -> tuple[str, ...]:
    """The other resources that a node must have."""
    return tuple(
        resource
        for resource, amount in template.requests.items()
        if amount > 0 and is_scalar_resource_name(resource) and resource not in backed
    )


def special_claim(pod: PodInfo, uid: str) -> ResourceClaim:
    """Build the claim for a pod's extended resources, before it is created."""
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True
    )
    return ResourceClaim(
        metadata=ObjectMeta(
            name=SPECIAL_CLAIM,
            namespace=pod.namespace,
            uid=uid,
            annotations={EXTENDED_RESOURCE_CLAIM: "true"},
            owner_references=[owner],
        )
    )


def extended_requests(
    spec: PodSpec, resources: Sequence[str], classes: ExtendedResourceClasses
) -> ExtendedRequests:
    """Build the requests of a pod where these resources (sorted) are backed by devices.

    kube-scheduler: createRequestsAndMappings.
    """
    containers = (*spec.init_containers, *spec.containers)
    short_lived = {
        index
        for index, one in enumerate(spec.init_containers)
        if not is_restartable_init_container(one)
    }
    requests: list[_Asked] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in resources:
        device_class = classes.get(resource)
        assert device_class is not None
        asked = list(_asked(containers, resource))
        lasting = [one for one in asked if one.container not in short_lived]
        requests += lasting
        mappings += [_mapping(containers[one.container], resource, one.request) for one in lasting]
        own: list[_Asked] = []
        for one in asked:
            if one.container in short_lived:
                rest = one.number
                for other in lasting:
                    if other.container >= one.container and rest > 0:
                        container = containers[one.container]
                        mappings.append(_mapping(container, resource, other.request))
                        rest -= other.number
                if rest > 0:
                    own.append(one._replace(number=rest))
        if own:
            # They run one after the other, so that they share the devices of the largest.
            largest = max(own, key=lambda one: one.number)
            requests.append(largest)
            mappings += [
                _mapping(containers[one.container], resource, largest.request) for one in own
            ]
    exact = [
        (
            one.request,
            ExactDeviceRequest(
                device_class_name=_class_name(classes, one.resource),
                allocation_mode=EXACT_COUNT,
                count=one.number,
            ),
        )
        for one in requests
    ]
    made = [DeviceRequest(name=name, exactly=one) for name, one in sorted(exact, key=_first)]
    # Pods of other templates may want the same: what is found for one holds for all.
    wanted = shared_spec(ResourceClaimSpec(devices=DeviceClaim(requests=made)))
    return ExtendedRequests(wanted, mappings)


class _Asked(NamedTuple):
    """How much of a resource a container requests."""

    container: int
    resource: str
    request: str
    """The name of its request in the claim."""
    number: int


def _asked(containers: Sequence[Container], resource: str) -> Iterator[_Asked]:
    for index, container in enumerate(containers):
        requests = container.resources.requests
        count = value(requests.get(resource, 0))
        if count > 0:
            position = sorted(requests).index(resource)
            yield _Asked(index, resource, f"container-{index}-request-{position}", count)


def _mapping(container: Container, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(
        container_name=container.name, resource_name=resource, request_name=request
    )


def _class_name(classes: ExtendedResourceClasses, resource: str) -> str:
    device_class = classes.get(resource)
    assert device_class is not None
    return device_class.metadata.name


def _first(pair: tuple[str, ExactDeviceRequest]) -> str:
    return pair[0]
