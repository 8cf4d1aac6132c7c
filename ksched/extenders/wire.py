"""The messages between scheduler and extender (kube-scheduler's extender/v1, v1.36).

Requests are encoded as Go encodes them, with the same order of fields. Responses are decoded as Go
does: field names match in any case, ``null`` means empty, unknown fields are ignored. Every
``decode_`` function raises ``msgspec.DecodeError`` with the name of the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


# -- requests -----------------------------------------------------------------------------------


class _NodeList(Struct):
    metadata: dict[str, str]
    items: list[Raw]


class _ExtenderArgs(Struct, rename="pascal"):
    pod: Raw
    nodes: _NodeList | None
    node_names: Sequence[str] | None


class _ExtenderBindingArgs(Struct, rename="pascal"):
    pod_name: str
    pod_namespace: str
    pod_uid: str = field(name="PodUID")
    node: str


class _Victims(Struct, rename="pascal"):
    pods: list[Raw]
    num_pdb_violations: int = field(name="NumPDBViolations")


class _MetaPod(Struct):
    uid: str = field(name="UID")


class _MetaVictims(Struct, rename="pascal"):
    pods: list[_MetaPod]
    num_pdb_violations: int = field(name="NumPDBViolations")


class _ExtenderPreemptionArgs(Struct, rename="pascal"):
    pod: Raw
    node_name_to_victims: dict[str, _Victims] | None
    node_name_to_meta_victims: dict[str, _MetaVictims] | None


def encode_args(pod: bytes, nodes: Sequence[bytes] | None, names: Sequence[str] | None) -> bytes:
    """Encode a filter or prioritize request: a pod, and either whole nodes or their names."""
    whole = None if nodes is None else _NodeList({}, [Raw(node) for node in nodes])
    return _encode(_ExtenderArgs(Raw(pod), whole, names))


def encode_binding(name: str, namespace: str, uid: str, node_name: str) -> bytes:
    """Encode a bind request."""
    return _encode(_ExtenderBindingArgs(name, namespace, uid, node_name))


def encode_preemption(pod: bytes, victims: Mapping[str, tuple[Sequence[bytes], int]]) -> bytes:
    """Encode a preempt request with whole pods, and by node the number of violated budgets."""
    by_node = {
        node_name: _Victims([Raw(one) for one in pods], violations)
        for node_name, (pods, violations) in sorted(victims.items())
    }
    return _encode(_ExtenderPreemptionArgs(Raw(pod), by_node, None))


def encode_meta_preemption(pod: bytes, victims: Mapping[str, tuple[Sequence[str], int]]) -> bytes:
    """Encode a preempt request with the uids of pods.

    kube-scheduler: convertToMetaVictims.
    """
    by_node = {
        node_name: _MetaVictims([_MetaPod(uid) for uid in uids], violations)
        for node_name, (uids, violations) in sorted(victims.items())
    }
    return _encode(_ExtenderPreemptionArgs(Raw(pod), None, by_node))


# -- responses ----------------------------------------------------------------------------------


class FilterResult(Struct, frozen=True):
    """The response of filter. ``None`` distinguishes an absent list from an empty one."""

    nodes: list[str] | None
    """Names of the whole nodes that were returned."""
    node_names: list[str] | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str


class MetaVictims(Struct, frozen=True):
    """The uids of pods to be evicted from one node."""

    uids: list[str]
    num_pdb_violations: int


def decode_filter_result(data: bytes) -> FilterResult:
    """Read an ``ExtenderFilterResult``."""
    fields = _Fields(data)
    return FilterResult(
        nodes=_node_list(fields.raw("Nodes")),
        node_names=fields.get("NodeNames", list[str] | None),
        failed_nodes=_failed_nodes(fields, "FailedNodes"),
        failed_and_unresolvable_nodes=_failed_nodes(fields, "FailedAndUnresolvableNodes"),
        error=fields.get("Error", str | None) or "",
    )


class _HostPriority(Struct, rename="pascal"):
    host: str
    score: int


_decode_priorities = msgspec.json.Decoder(list[_HostPriority]).decode


def decode_host_priorities(data: bytes) -> list[tuple[str, int]]:
    """Read a ``HostPriorityList``: names of nodes with their scores."""
    try:
        return [(one.host, one.score) for one in _decode_priorities(data)]
    except msgspec.ValidationError:
        pass  # not in Go's spelling
    priorities = []
    for item in msgspec.json.decode(data, type=list[Raw] | None) or ():
        fields = _Fields(item)
        host = fields.get("Host", str | None) or ""
        priorities.append((host, fields.get("Score", int | None) or 0))
    return priorities


def decode_binding_result(data: bytes) -> str:
    """Decode an ``ExtenderBindingResult``: why the pod was not bound, "" if it was."""
    return _Fields(data).get("Error", str | None) or ""


def decode_preemption_result(data: bytes) -> dict[str, MetaVictims]:
    """Read an ``ExtenderPreemptionResult``: the victims by name of node."""
    by_node = _Fields(data).get("NodeNameToMetaVictims", dict[str, Raw] | None) or {}
    return {node_name: _meta_victims(victims) for node_name, victims in by_node.items()}


def _meta_victims(data: Raw) -> MetaVictims:
    fields = _Fields(data)
    pods = fields.get("Pods", list[Raw] | None) or ()
    return MetaVictims(
        [_Fields(pod).get("UID", str | None) or "" for pod in pods],
        fields.get("NumPDBViolations", int | None) or 0,
    )


def _failed_nodes(fields: _Fields, name: str) -> dict[str, str]:
    failed = fields.get(name, dict[str, str | None] | None) or {}
    return {node_name: message or "" for node_name, message in failed.items()}


class _Name(Struct, frozen=True):
    name: str = ""


class _Named(Struct):
    metadata: _Name = _Name()


class _Items(Struct):
    items: list[_Named] = []


_decode_items = msgspec.json.Decoder(_Items).decode


def _node_list(data: Raw | None) -> list[str] | None:
    """Return the names in a list of nodes, with a fast path for Go's spelling."""
    if data is None:
        return None
    try:
        names = [node.metadata.name for node in _decode_items(data).items]
    except msgspec.ValidationError:
        names = []
    if names and all(names):
        return names
    nodes = _Fields(data).get("Items", list[Raw] | None) or ()
    return [_node_name(node) for node in nodes]


def _node_name(data: Raw) -> str:
    metadata = _Fields(data).raw("metadata")
    return _Fields(metadata).get("name", str | None) or "" if metadata is not None else ""


class _Fields:
    """The fields of one JSON object by name, in any case; the last of several wins."""

    def __init__(self, data: bytes | Raw) -> None:
        fields = msgspec.json.decode(data, type=dict[str, Raw] | None) or {}
        self._fields = {name.lower(): value for name, value in fields.items()}

    def raw(self, name: str) -> Raw | None:
        """Return a field that is present and not null."""
        value = self._fields.get(name.lower())
        return None if value is None or bytes(value) == b"null" else value

    def get(self, name: str, kind: Any) -> Any:
        value = self.raw(name)
        if value is None:
            return None
        try:
            return msgspec.json.decode(value, type=kind)
        except msgspec.DecodeError as error:
            raise msgspec.ValidationError(f"{name}: {error}") from None
