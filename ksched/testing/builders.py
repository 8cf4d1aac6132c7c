"""Pods and nodes for tests, in one line that shows only what matters.

    make_pod("web-0").req(cpu="1", memory="1Gi").label(app="web").obj()
    make_node("n1").capacity(cpu="4").label({"topology.kubernetes.io/zone": "a"}).obj()

Every step returns a new builder, so a common prefix can be shared. ``obj()`` is the object as the
scheduler reads it, ``to_dict()`` the JSON for an API server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar

import msgspec

from ksched.api.objects import Node, Pod, Quantity

Json: TypeAlias = dict[str, Any]
Expression: TypeAlias = tuple[str, str] | tuple[str, str, Iterable[str]]
"""Key, operator and, unless the operator takes none, the values."""

T = TypeVar("T", bound=msgspec.Struct)

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def make_pod(name: str = "pod", namespace: str = "default") -> PodBuilder:
    """Start a pod with one container without requests."""
    container = {"name": "c0", "image": "registry.k8s.io/pause:3.10"}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid:{namespace}/{name}"}
    spec = {"schedulerName": "default-scheduler", "containers": [container]}
    return PodBuilder({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def make_node(name: str = "node") -> NodeBuilder:
    """Start a ready, empty node of 4 cores, 32 GiB and 110 pods."""
    labels = {"kubernetes.io/hostname": name}
    metadata = {"name": name, "uid": f"uid:{name}", "labels": labels}
    ready = {"type": "Ready", "status": "True"}
    node = NodeBuilder(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": {},
            "status": {"conditions": [ready]},
        }
    )
    return node.capacity(cpu="4", memory="32Gi", pods="110")


class Builder(Generic[T]):
    """An immutable object as JSON; see ``storage_builders`` for volumes."""

    kind: ClassVar[Any]

    def __init__(self, data: Json) -> None:
        self._data = data

    def obj(self) -> T:
        built: T = msgspec.convert(self._data, self.kind)
        return built

    def to_dict(self) -> Json:
        copied: Json = _copied(self._data)
        return copied

    def uid(self, uid: str) -> Self:
        return self._set("metadata", "uid", to=uid)

    def resource_version(self, version: str) -> Self:
        return self._set("metadata", "resourceVersion", to=version)

    def label(self, labels: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Add labels; keys that are not Python names go into the mapping."""
        return self._update("metadata", "labels", items={**(labels or {}), **more})

    def annotation(self, annotations: Mapping[str, str] | None = None, /, **more: str) -> Self:
        return self._update("metadata", "annotations", items={**(annotations or {}), **more})

    def condition(self, type: str, status: str, reason: str = "") -> Self:  # noqa: A002
        condition = _present(type=type, status=status, reason=reason)
        return self._append("status", "conditions", item=condition)

    def merge(self, patch: Json) -> Self:
        """Apply a JSON merge patch: for any field without a method here."""
        return type(self)(_merged(self._data, _copied(patch)))

    def _change(self, path: tuple[str, ...], change: Callable[[Any], Any]) -> Self:
        return type(self)(_replaced(self._data, path, change))

    def _set(self, *path: str, to: Any) -> Self:
        return self._change(path, lambda _: to)

    def _append(self, *path: str, item: Any) -> Self:
        return self._change(path, lambda items: [*(items or []), item])

    def _update(self, *path: str, items: Json) -> Self:
        return self._change(path, lambda old: {**(old or {}), **items})


class PodBuilder(Builder[Pod]):
    """A pod under construction; see ``make_pod``."""

    kind = Pod

    # -- containers ------------------------------------------------------------------------------

    def req(self, requests: Mapping[str, Quantity] | None = None, /, **more: Quantity) -> Self:
        """Set requests of the last container; ``ephemeral_storage`` is ephemeral-storage."""
        return self._container(
            lambda container: _replaced(
                container,
                ("resources", "requests"),
                lambda old: {**(old or {}), **_resources(requests, more)},
            )
        )

    def container(
        self, requests: Mapping[str, Quantity] | None = None, /, **more: Quantity
    ) -> Self:
        """Add a further container."""
        name = f"c{len(self._data['spec']['containers'])}"
        container = {"name": name, "image": "registry.k8s.io/pause:3.10"}
        return self._append("spec", "containers", item=container).req(requests, **more)

    def init(
        self,
        requests: Mapping[str, Quantity] | None = None,
        /,
        *,
        sidecar: bool = False,
        image: str = "registry.k8s.io/pause:3.10",
        **more: Quantity,
    ) -> Self:
        """Add an init container; a ``sidecar`` keeps running."""
        container = _present(
            name=f"init{len(self._data['spec'].get('initContainers', []))}",
            image=image,
            restartPolicy="Always" if sidecar else "",
            resources={"requests": _resources(requests, more)},
        )
        return self._append("spec", "initContainers", item=container)

    def image(self, image: str) -> Self:
        """Set the image of the last container."""
        return self._container(lambda container: {**container, "image": image})

    def host_port(self, port: int, protocol: str = "TCP", host_ip: str = "") -> Self:
        """Add a host port to the last container."""
        opened = _present(containerPort=port, hostPort=port, protocol=protocol, hostIP=host_ip)
        return self._container(
            lambda container: {**container, "ports": [*container.get("ports", []), opened]}
        )

    def overhead(self, overhead: Mapping[str, Quantity] | None = None, /, **more: Quantity) -> Self:
        return self._update("spec", "overhead", items=_resources(overhead, more))

    def pod_level_req(
        self, requests: Mapping[str, Quantity] | None = None, /, **more: Quantity
    ) -> Self:
        """Set requests of the pod as a whole (``spec.resources``)."""
        return self._update("spec", "resources", "requests", items=_resources(requests, more))

    def _container(self, change: Callable[[Json], Json]) -> Self:
        return self._change(("spec", "containers"), lambda all_: [*all_[:-1], change(all_[-1])])

    # -- placement -------------------------------------------------------------------------------

    def node(self, name: str) -> Self:
        """Assign the pod to a node."""
        return self._set("spec", "nodeName", to=name)

    def nominated(self, node_name: str) -> Self:
        return self._set("status", "nominatedNodeName", to=node_name)

    def node_selector(self, labels: Mapping[str, str] | None = None, /, **more: str) -> Self:
        return self._update("spec", "nodeSelector", items={**(labels or {}), **more})

    def toleration(
        self, key: str = "", value: str = "", effect: str = "", operator: str = ""
    ) -> Self:
        """Add a toleration; without a value it is ``Exists`` unless an operator is given."""
        operator = operator or ("Equal" if value else "Exists")
        toleration = _present(key=key, value=value, effect=effect, operator=operator)
        return self._append("spec", "tolerations", item=toleration)

    def required_node_affinity(
        self, *expressions: Expression, fields: Iterable[Expression] = ()
    ) -> Self:
        """Add one term; all its expressions must hold, and one term of several suffices."""
        path = ("spec", "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
        return self._append(*path, item=_node_term(expressions, fields))

    def preferred_node_affinity(
        self, weight: int, *expressions: Expression, fields: Iterable[Expression] = ()
    ) -> Self:
        path = ("spec", "affinity", "nodeAffinity", _PREFERRED)
        term = {"weight": weight, "preference": _node_term(expressions, fields)}
        return self._append(*path, item=term)

    def pod_affinity(
        self,
        topology_key: str,
        labels: Mapping[str, str] | None = None,
        expressions: Iterable[Expression] = (),
        **options: Any,
    ) -> Self:
        """Add a term towards pods with these labels; with ``weight=`` it is preferred only.

        Further options: ``namespaces`` and ``namespace_labels`` (``{}`` selects all namespaces).
        """
        return self._pod_term("podAffinity", topology_key, labels, expressions, **options)

    def pod_anti_affinity(
        self,
        topology_key: str,
        labels: Mapping[str, str] | None = None,
        expressions: Iterable[Expression] = (),
        **options: Any,
    ) -> Self:
        """Add a term away from pods with these labels; options as of ``pod_affinity``."""
        return self._pod_term("podAntiAffinity", topology_key, labels, expressions, **options)

    def _pod_term(
        self,
        field: str,
        topology_key: str,
        labels: Mapping[str, str] | None,
        expressions: Iterable[Expression],
        *,
        weight: int | None = None,
        namespaces: Iterable[str] = (),
        namespace_labels: Mapping[str, str] | None = None,
    ) -> Self:
        term = _present(
            topologyKey=topology_key,
            labelSelector=_label_selector(labels, expressions),
            namespaces=list(namespaces),
            namespaceSelector=_label_selector(namespace_labels, ()),
        )
        if weight is None:
            return self._append("spec", "affinity", field, _REQUIRED, item=term)
        weighted = {"weight": weight, "podAffinityTerm": term}
        return self._append("spec", "affinity", field, _PREFERRED, item=weighted)

    def spread(
        self,
        topology_key: str,
        labels: Mapping[str, str] | None = None,
        expressions: Iterable[Expression] = (),
        *,
        max_skew: int = 1,
        when_unsatisfiable: str = "DoNotSchedule",
        min_domains: int | None = None,
        node_affinity_policy: str | None = None,
        node_taints_policy: str | None = None,
        match_label_keys: Iterable[str] = (),
    ) -> Self:
        """Add a topology spread constraint over pods with these labels."""
        constraint = _present(
            topologyKey=topology_key,
            labelSelector=_label_selector(labels, expressions),
            maxSkew=max_skew,
            whenUnsatisfiable=when_unsatisfiable,
            minDomains=min_domains,
            nodeAffinityPolicy=node_affinity_policy,
            nodeTaintsPolicy=node_taints_policy,
            matchLabelKeys=list(match_label_keys),
        )
        return self._append("spec", "topologySpreadConstraints", item=constraint)

    # -- other fields ----------------------------------------------------------------------------

    def scheduler(self, name: str) -> Self:
        return self._set("spec", "schedulerName", to=name)

    def priority(self, priority: int) -> Self:
        return self._set("spec", "priority", to=priority)

    def preemption_policy(self, policy: str) -> Self:
        return self._set("spec", "preemptionPolicy", to=policy)

    def gate(self, name: str) -> Self:
        return self._append("spec", "schedulingGates", item={"name": name})

    def pvc(self, claim_name: str, *, read_only: bool = False) -> Self:
        """Mount a claim of the pod's namespace."""
        claim: Json = {"claimName": claim_name} | ({"readOnly": True} if read_only else {})
        volume = {"name": claim_name, "persistentVolumeClaim": claim}
        return self._append("spec", "volumes", item=volume)

    def ephemeral(self, volume: str) -> Self:
        """Mount an ephemeral volume, whose claim is created for this pod."""
        return self.volume({"name": volume, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}})

    def volume(self, volume: Json) -> Self:
        """Add a volume, as JSON."""
        return self._append("spec", "volumes", item={"name": "disk", **volume})

    def owner(self, kind: str, name: str, api_version: str = "apps/v1") -> Self:
        """Set the controller to the owner of this kind and name."""
        reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid:{name}"}
        return self._append("metadata", "ownerReferences", item={**reference, "controller": True})

    def phase(self, phase: str) -> Self:
        return self._set("status", "phase", to=phase)

    def created(self, timestamp: str) -> Self:
        return self._set("metadata", "creationTimestamp", to=timestamp)

    def started(self, timestamp: str) -> Self:
        return self._set("status", "startTime", to=timestamp)

    def terminating(self, timestamp: str = "2023-11-14T22:13:20Z") -> Self:
        """Mark the pod as terminating."""
        return self._set("metadata", "deletionTimestamp", to=timestamp)


class NodeBuilder(Builder[Node]):
    """A node under construction; see ``make_node``."""

    kind = Node

    def capacity(self, capacity: Mapping[str, Quantity] | None = None, /, **more: Quantity) -> Self:
        """Set capacity and allocatable; others keep their value."""
        resources = _resources(capacity, more)
        changed = self._update("status", "capacity", items=resources)
        return changed._update("status", "allocatable", items=resources)

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        taint = _present(key=key, value=value, effect=effect)
        return self._append("spec", "taints", item=taint)

    def unschedulable(self) -> Self:
        """Cordon the node."""
        return self._set("spec", "unschedulable", to=True)

    def image(self, name: str, size_bytes: int) -> Self:
        """Add an image to the node."""
        return self._append("status", "images", item={"names": [name], "sizeBytes": size_bytes})


def _replaced(data: Json, path: tuple[str, ...], change: Callable[[Any], Any]) -> Json:
    """Return a copy of ``data`` that differs only along ``path``."""
    head, rest = path[0], path[1:]
    if not rest:
        return {**data, head: change(data.get(head))}
    return {**data, head: _replaced(data.get(head) or {}, rest, change)}


def _merged(data: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(data) if isinstance(data, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _copied(value: Any) -> Any:
    """Copy JSON; several times as fast as ``copy.deepcopy``."""
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(one) for one in value]
    return value


def _present(**fields: Any) -> Json:
    """Omit empty values except ``{}``, because an empty selector means everything."""
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def _resources(quantities: Mapping[str, Quantity] | None, named: Mapping[str, Quantity]) -> Json:
    return {
        **(quantities or {}),
        **{name.replace("_", "-"): quantity for name, quantity in named.items()},
    }


def _label_selector(
    labels: Mapping[str, str] | None, expressions: Iterable[Expression]
) -> Json | None:
    """Build a selector; ``None`` is the selector of nothing."""
    wanted = [_expression(expression) for expression in expressions]
    if labels is None and not wanted:
        return None
    selector: Json = {"matchLabels": dict(labels)} if labels else {}
    return {**selector, "matchExpressions": wanted} if wanted else selector


def _node_term(expressions: Iterable[Expression], fields: Iterable[Expression]) -> Json:
    return _present(
        matchExpressions=[_expression(expression) for expression in expressions],
        matchFields=[_expression(expression) for expression in fields],
    )


def _expression(expression: Expression) -> Json:
    key, operator, *values = expression
    return _present(key=key, operator=operator, values=list(values[0]) if values else [])
