"""A pod as the scheduler sees it: the object, and the template it shares with equal pods.

Pods with equal namespace, labels, controller and spec (without ``nodeName``) share a *template*. A
ReplicaSet's ten thousand pods have one, so whatever depends only on template and node is computed
once. Templates that are equal without inter-pod fields share a *signature*, and those that differ
also in the names of their claims a *claimless signature*: every pod of a StatefulSet has its own
claims, and so have pods that share devices with few others. Templates of one signature that
``FilterDependsOn.group`` puts together share cached columns. Name, annotations and status belong to
none of these (``Scope.POD``). Templates live as long as a pod refers to them, and a little longer:
an API server copies labels of the node, its zone for one, to a pod when it is bound, so a bound pod
does not keep the template that the next pod of its kind will have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, wraps
from hashlib import blake2b
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import force_setattr

from ksched.api.large_pods import assigned, facts_of, unassigned
from ksched.api.objects import (
    Affinity,
    Labels,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodAffinity,
    PodResourceClaim,
    PodSpec,
    Volume,
)
from ksched.api.pod_resources import (
    has_own_sums,
    has_pod_level_requests,
    non_missing_requests,
    non_missing_requests_with_status,
    pod_requests,
    pod_requests_with_status,
)
from ksched.api.tolerations import Tolerations
from ksched.cache.common_values import CommonValues
from ksched.cache.resource_axis import Demand, ResourceAxis
from ksched.errors import InvalidObject
from ksched.tuning import TEMPLATES_KEPT

T = TypeVar("T")

LARGE_SPEC_BYTES = 64 * 1024
"""Encoded; larger specs get a signature of their own, since encoding one twice to find whether
another template shares it costs more than it saves."""

HostPort = tuple[str, str, int]
"""Protocol, address, port. The address 0.0.0.0 stands for every address."""

ANY_ADDRESS = "0.0.0.0"

_ENCODED = "encoded"

WantedPorts = Mapping[tuple[str, int], frozenset[str]]
"""The requested addresses by protocol and port."""


class PodNeeds:
    """What pods with a spec ask of a node."""

    __slots__ = ("demand", "host_ports", "non_zero", "requests")

    def __init__(self, spec: PodSpec, axis: ResourceAxis) -> None:
        self.requests: Mapping[str, int] = pod_requests(spec)
        self.demand = Demand(self.requests, axis)
        self.non_zero = (
            non_missing_requests_with_status(Pod(metadata=ObjectMeta(), spec=spec))
            if has_pod_level_requests(spec)
            else non_missing_requests(spec)
        )
        self.host_ports = host_ports_of(spec)


class PodSignature:
    """The part of a template that remains without inter-pod fields.

    These are labels, controller, inter-pod affinity, spread constraints and the pod group. Most
    plugins read none of them.
    """

    __slots__ = ("__weakref__", "needs")

    def __init__(self, needs: PodNeeds) -> None:
        self.needs = needs


class PodTemplate:
    """Everything plugins may read of a pod, shared by all pods that are equal in it."""

    def __init__(
        self,
        number: int,
        namespace: str,
        labels: Labels,
        spec: PodSpec,
        controller: OwnerReference | None,
        signatures: tuple[PodSignature, PodSignature],
        *,
        is_large: bool = False,
    ) -> None:
        self.number = number
        self.signature, self.claimless_signature = signatures
        self.is_large = is_large
        """Whether the spec is so large that an attempt yields to the event loop at every step."""
        self.namespace = namespace
        self.labels = labels
        self.spec = spec
        self.controller = controller
        needs = self.signature.needs
        self.requests = needs.requests
        """Effective requests by resource name: cpu in millis, the rest in units."""
        self.demand = needs.demand
        self.non_zero = needs.non_zero
        """(cpu millis, memory bytes) with defaults for containers without requests."""
        self.host_ports = needs.host_ports
        self.facts: dict[object, Any] = {}

    @property
    def priority(self) -> int:
        return self.spec.priority or 0

    @cached_property
    def claim_names(self) -> tuple[str, ...]:
        """PersistentVolumeClaims named by the pod's volumes."""
        return tuple(
            volume.persistent_volume_claim.claim_name
            for volume in self.spec.volumes
            if volume.persistent_volume_claim is not None
        )

    @cached_property
    def tolerations(self) -> Tolerations:
        return Tolerations(self.spec.tolerations)

    @cached_property
    def wanted_ports(self) -> WantedPorts:
        return wanted_ports(self.host_ports)

    @cached_property
    def has_pod_affinity(self) -> bool:
        """kube-scheduler: podWithAffinity."""
        affinity = self.spec.affinity
        return affinity is not None and (
            affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
        )

    @cached_property
    def has_required_anti_affinity(self) -> bool:
        """kube-scheduler: podWithRequiredAntiAffinity."""
        affinity = self.spec.affinity
        terms: PodAffinity | None = affinity.pod_anti_affinity if affinity else None
        return terms is not None and bool(terms.required)

    def __repr__(self) -> str:
        return f"<PodTemplate {self.number} in {self.namespace}>"


def template_fact(compute: Callable[[PodTemplate], T]) -> Callable[[PodTemplate], T]:
    """Memoize a function of a template for the lifetime of the template."""

    @wraps(compute)
    def fact(template: PodTemplate) -> T:
        facts = template.facts
        if fact not in facts:
            facts[fact] = compute(template)
        answer: T = facts[fact]
        return answer

    return fact


def host_ports_of(spec: PodSpec) -> tuple[HostPort, ...]:
    """Host ports of containers and sidecars.

    kube-scheduler: GetHostPorts.
    """
    containers = [
        *spec.containers,
        *(one for one in spec.init_containers if one.restart_policy == "Always"),
    ]
    return tuple(
        (port.protocol or "TCP", port.host_ip or ANY_ADDRESS, port.host_port)
        for container in containers
        for port in container.ports
        if port.host_port > 0
    )


def wanted_ports(ports: Iterable[HostPort]) -> WantedPorts:
    addresses: dict[tuple[str, int], set[str]] = {}
    for protocol, address, port in ports:
        addresses.setdefault((protocol, port), set()).add(address)
    return {port: frozenset(found) for port, found in addresses.items()}


def ports_conflict(wanted: WantedPorts, used: Iterable[HostPort]) -> bool:
    """Whether requested and used host ports collide on a common address."""
    for protocol, address, port in used:
        addresses = wanted.get((protocol, port))
        if addresses is not None and (
            address == ANY_ADDRESS or address in addresses or ANY_ADDRESS in addresses
        ):
            return True
    return False


class PodInfo:
    """A pod, its template, and its resource demand."""

    __slots__ = ("demand", "node_name", "non_zero", "pod", "template", "uid")

    def __init__(
        self, pod: Pod, template: PodTemplate, demand: Demand, non_zero: tuple[int, int]
    ) -> None:
        self.pod = pod
        # Read dozens of times per pod.
        self.uid = pod.metadata.uid
        self.node_name = pod.spec.node_name
        self.template = template
        self.demand = demand
        """The pod's requests; differ from the template's during an in-place resize."""
        self.non_zero = non_zero

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def namespace(self) -> str:
        return self.template.namespace

    @property
    def key(self) -> str:
        return self.pod.metadata.key

    @property
    def labels(self) -> Labels:
        return self.template.labels

    @property
    def spec(self) -> PodSpec:
        return self.pod.spec

    @property
    def priority(self) -> int:
        return self.template.spec.priority or 0

    @property
    def is_terminating(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def is_vanishing(self) -> bool:
        """Whether the pod is terminating and nothing is waited for: its deletion follows at once.

        An API server that deletes without a grace period marks the pod first.
        """
        meta = self.pod.metadata
        return meta.deletion_grace_period_seconds == 0 and not meta.finalizers

    def on_node(self, node_name: str) -> PodInfo:
        """Return the pod as it will be once it is bound to a node."""
        spec = assigned(self.pod.spec, node_name)
        pod = msgspec.structs.replace(self.pod, spec=spec)
        return PodInfo(pod, self.template, self.demand, self.non_zero)

    def __repr__(self) -> str:
        return f"<PodInfo {self.key}>"


def _without_claim_names(spec: PodSpec) -> PodSpec:
    """Blank the names of claims of both kinds; the spec itself if it has none."""
    volumes, claims = spec.volumes, spec.resource_claims
    has_volume_claims = any(one.persistent_volume_claim is not None for one in volumes)
    has_named_claims = any(one.resource_claim_name is not None for one in claims)
    if not (has_volume_claims or has_named_claims):
        return spec
    return msgspec.structs.replace(
        spec,
        volumes=[*map(_without_claim_name, volumes)] if has_volume_claims else volumes,
        resource_claims=[*map(_unnamed, claims)] if has_named_claims else claims,
    )


def _without_claim_name(volume: Volume) -> Volume:
    source = volume.persistent_volume_claim
    if source is None:
        return volume
    unnamed = msgspec.structs.replace(source, claim_name="")
    return msgspec.structs.replace(volume, persistent_volume_claim=unnamed)


def _unnamed(claim: PodResourceClaim) -> PodResourceClaim:
    is_named = claim.resource_claim_name is not None
    return msgspec.structs.replace(claim, resource_claim_name="") if is_named else claim


class TemplateRegistry:
    """Interns templates, so that equal templates are identical objects."""

    def __init__(self, axis: ResourceAxis) -> None:
        self.axis = axis
        self._templates: WeakValueDictionary[bytes, PodTemplate] = WeakValueDictionary()
        self._kept: deque[PodTemplate] = deque(maxlen=TEMPLATES_KEPT)
        """Those made last, without large ones, until the next sweep: the next pod of their kind may
        come when the last one is bound."""
        self._signatures: WeakValueDictionary[bytes, PodSignature] = WeakValueDictionary()
        # An API server sorts the keys of a map: equal specs have equal bytes as they come.
        self._encode = msgspec.msgpack.Encoder().encode
        self._made = 0
        self._common = CommonValues()

    def pod_info(self, pod: Pod) -> PodInfo:
        """Attach a pod's template. Raises ``InvalidObject`` for an unparsable quantity.

        kube-scheduler: NewPodInfo, SignPod.
        """
        template = self._intern(pod)
        self._share(pod, template)
        if not has_own_sums(pod):
            return PodInfo(pod, template, template.demand, template.non_zero)
        requests = pod_requests_with_status(pod)
        # Not implied by equal requests: a container that reports an explicit zero gets no default.
        non_zero = non_missing_requests_with_status(pod)
        if requests == template.requests and non_zero == template.non_zero:
            return PodInfo(pod, template, template.demand, template.non_zero)
        return PodInfo(pod, template, Demand(requests, self.axis), non_zero)

    def _share(self, pod: Pod, template: PodTemplate) -> None:
        """Make a decoded pod share its template's equal labels and spec: most of its memory.

        A pod that is held at Permit exists in two versions, since it is nominated meanwhile.
        Assigned pods are many and live long: they share also what others have in common with them.
        """
        meta, node_name = pod.metadata, pod.spec.node_name
        force_setattr(meta, "namespace", template.namespace)
        force_setattr(meta, "labels", template.labels)
        if not node_name:
            force_setattr(pod, "spec", template.spec)
            return
        node_name = self._common.common(node_name)
        spec = assigned(template.spec, node_name)
        force_setattr(pod, "spec", spec)
        self._common.share_metadata(meta)
        force_setattr(pod, "status", self._common.shared_status(pod.status))

    def _intern(self, pod: Pod) -> PodTemplate:
        meta, spec = pod.metadata, unassigned(pod.spec)
        controller = None
        for owner in meta.owner_references:
            if owner.controller:
                controller = owner
                break
        key, encoded_bytes = self._key(meta, controller, spec)
        template = self._templates.get(key)
        if template is None:
            self._made += 1
            is_large = encoded_bytes > LARGE_SPEC_BYTES
            try:
                signatures = self._signatures_of(meta.namespace, spec, is_large=is_large)
            except ValueError as problem:
                raise InvalidObject("Pod", meta.key, str(problem)) from problem
            template = self._templates[key] = PodTemplate(
                self._made,
                meta.namespace,
                meta.labels,
                spec,
                controller,
                signatures,
                is_large=is_large,
            )
            if not is_large:
                self._kept.append(template)
        return template

    def sweep(self) -> None:
        """Let go of templates without pods."""
        self._kept.clear()

    def _key(
        self, meta: ObjectMeta, controller: OwnerReference | None, spec: PodSpec
    ) -> tuple[bytes, int]:
        """What equal templates have in common, and the size of all that it stands for."""
        facts = facts_of(spec)
        if facts is None:
            key = self._encode((meta.namespace, meta.labels, controller, spec))
            return key, len(key)
        if _ENCODED not in facts:
            text = self._encode(spec)
            facts[_ENCODED] = blake2b(text, digest_size=16).digest(), len(text)
        digest, spec_bytes = facts[_ENCODED]
        key = self._encode((meta.namespace, meta.labels, controller, digest))
        return key, len(key) + spec_bytes

    def _signatures_of(
        self, namespace: str, spec: PodSpec, *, is_large: bool
    ) -> tuple[PodSignature, PodSignature]:
        """The signature of a template, and the claimless one."""
        if is_large:
            own = PodSignature(PodNeeds(spec, self.axis))
            return own, own
        affinity = spec.affinity
        if affinity is not None:
            affinity = Affinity(node_affinity=affinity.node_affinity)
        alone = msgspec.structs.replace(
            spec, affinity=affinity, topology_spread_constraints=(), scheduling_group=None
        )
        claimless = _without_claim_names(alone)
        # Of the spec as it came: the sums of a large one are found with it.
        without = self._signature(namespace, claimless, lambda: PodNeeds(spec, self.axis))
        if claimless is alone:
            return without, without
        return self._signature(namespace, alone, lambda: without.needs), without

    def _signature(
        self, namespace: str, spec: PodSpec, needs: Callable[[], PodNeeds]
    ) -> PodSignature:
        key = self._encode((namespace, spec))
        signature = self._signatures.get(key)
        if signature is None:
            signature = self._signatures[key] = PodSignature(needs())
        return signature

    def __iter__(self) -> Iterator[PodTemplate]:
        """Iterate over the templates there are now; some may go meanwhile."""
        return iter(list(self._templates.values()))

    def __len__(self) -> int:
        return len(self._templates)
