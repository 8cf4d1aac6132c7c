"""Pods and nodes with their original JSON, for extenders that receive complete objects.

The scheduler itself reads a fraction of an object's fields and drops the rest; an extender may read
any. The bytes belong to the decoded object, so that they are always of the same version and have
the same lifetime.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw

from ksched.api.decoding import decode_node, decode_pod, trim
from ksched.api.objects import Node, Pod


class WholePod(Pod, frozen=True):
    """A pod and its JSON, as Go embeds a pod in another message."""

    whole: bytes = b""


class WholeNode(Node, frozen=True):
    """A node and its JSON, as Go embeds a node in another message."""

    whole: bytes = b""


def decode_whole_node(data: bytes | Raw) -> WholeNode:
    """Decode a node with its bytes."""
    node = decode_node(data)
    whole = trim(data)
    return WholeNode(metadata=node.metadata, spec=node.spec, status=node.status, whole=whole)


def decode_whole_pod(data: bytes | Raw) -> WholePod:
    """Decode a pod with its bytes."""
    return _whole_pod(decode_pod(data), data)


def whole_pod_decoder(is_wanted: Callable[[Pod], bool]) -> Callable[[bytes | Raw], Pod]:
    """Return a function that decodes pods, with their bytes where ``is_wanted``."""

    def decode(data: bytes | Raw) -> Pod:
        pod = decode_pod(data)
        return _whole_pod(pod, data) if is_wanted(pod) else pod

    return decode


def _whole_pod(pod: Pod, data: bytes | Raw) -> WholePod:
    return WholePod(metadata=pod.metadata, spec=pod.spec, status=pod.status, whole=trim(data))


_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


class _Spec(msgspec.Struct, frozen=True):
    node_name: str = msgspec.field(name="nodeName", default="")


class _Placed(msgspec.Struct):
    spec: _Spec = _Spec()


_decode_placed = msgspec.json.Decoder(_Placed).decode


def with_node_name(pod: WholePod) -> bytes:
    """Return a pod's JSON with its node name; the bytes may be older than its placement."""
    node_name = pod.spec.node_name
    if not node_name or _decode_placed(pod.whole).spec.node_name == node_name:
        return pod.whole
    fields = _decode_fields(pod.whole)
    spec = _decode_fields(fields["spec"])
    spec["nodeName"] = Raw(_encode(node_name))
    fields["spec"] = Raw(_encode(spec))
    return _encode(fields)
