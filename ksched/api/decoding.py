"""Decoding of single objects, watch events and pages of a list.

Objects are decoded one by one, so that an invalid one does not affect the list or watch it came in.
Go encodes empty values as ``null``; an object that contains such a null is decoded more slowly,
through plain dictionaries. So is one whose ``managedFields`` are nested deeper than Python's
decoder supports: an API server accepts ten thousand levels, and nothing here reads them, so they
are removed first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Raw, Struct, field
from numpy.typing import NDArray

from ksched.api.devices import DeviceClass, ResourceClaim, whole_claim
from ksched.api.large_pods import LARGE_POD_BYTES, large_pod_steps
from ksched.api.objects import Node, Object, ObjectMeta, Pod
from ksched.api.pod_resources import sum_steps
from ksched.api.watched_kinds import Unstructured, WatchedKind
from ksched.errors import InvalidObject
from ksched.steps import Steps, at_once

T = TypeVar("T", bound=Struct)

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
BOOKMARK = "BOOKMARK"
ERROR = "ERROR"

WRITTEN_CLAIMS = 64
"""Limit of the answers to writes that wait for the watch; the event may also be first."""
WRITTEN_CLAIM_BYTES = 16_384
"""A longer one is decoded twice, since it might be kept for long."""


class PartialObjectMetadata(Object, frozen=True):
    """Any object, reduced to its metadata: the content of a bookmark."""

    metadata: ObjectMeta = ObjectMeta()


class StatusDetails(Object, frozen=True):
    retry_after_seconds: int = 0


class ApiStatus(Object, frozen=True):
    """The ``Status`` object of a failed request or of an ``ERROR`` event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class WatchEvent(Struct, frozen=True, gc=False):
    """One line of a watch; the content of ``object`` depends on ``type``."""

    type: str
    object: Raw = Raw(b"{}")


class ListMeta(Object, frozen=True):
    resource_version: str = ""
    continue_token: str = field(name="continue", default="")
    remaining_item_count: int | None = None


class _Page(Struct, frozen=True):
    metadata: ListMeta | None = None
    items: list[Raw] | None = None


class ListPage(NamedTuple):
    """One page of a list with undecoded items."""

    metadata: ListMeta
    items: list[Raw]


def decoder(kind: type[T]) -> Callable[[bytes | Raw], T]:
    """Return the function that decodes one object of a kind; it raises ``InvalidObject``.

    Building it is slow: create one per kind and reuse it.
    """
    decode = msgspec.json.Decoder(kind).decode

    def decode_anyhow(data: bytes | Raw) -> T:
        try:
            return decode(data)
        except msgspec.DecodeError as error:
            return _decode_leniently(kind, data, error)

    def decode_object(data: bytes | Raw) -> T:
        try:
            # Nearly always; the way through ``decode_anyhow`` would be another call for each event.
            return decode(data)
        except (msgspec.DecodeError, RecursionError):
            pass
        try:
            return decode_anyhow(data)
        except RecursionError:
            pass
        try:
            return decode_anyhow(without_managed_fields(data))
        except RecursionError as error:
            raise InvalidObject(kind.__name__, "(unreadable)", str(error)) from None

    return decode_object


def decoder_of(kind: WatchedKind[Any]) -> Callable[[bytes | Raw], Any]:
    """Return the function that decodes objects of a watched kind; it raises ``InvalidObject``.

    An exception of a plugin's struct affects only the object, not the watch.
    """
    decode = _WITH_RAW_PARTS.get(kind.struct) or (
        _decode_unstructured if kind.struct is Unstructured else decoder(kind.struct)
    )

    def decode_custom(data: bytes | Raw) -> Any:
        try:
            return decode(data)
        except InvalidObject:
            raise
        except Exception as error:
            key = decode_metadata(data).metadata.key
            raise InvalidObject(kind.resource.kind, key, repr(error)) from error

    return decode_custom


def _decode_unstructured(data: bytes | Raw) -> Unstructured:
    metadata = decode_metadata(data).metadata
    try:
        content = msgspec.json.decode(data, type=dict[str, Any])
    except RecursionError:
        content = msgspec.json.decode(without_managed_fields(data), type=dict[str, Any])
    return Unstructured(metadata, content)


def _decode_claim(data: bytes | Raw) -> ResourceClaim:
    written = _written_claims.pop(bytes(data), None)
    return _decode_unknown_claim(data) if written is None else written


def decode_written_claim(data: bytes) -> ResourceClaim:
    """Decode the answer to a write; the watch's event of it, with the same text, is that object."""
    claim = _decode_unknown_claim(data)
    if len(data) > WRITTEN_CLAIM_BYTES:
        return claim
    while len(_written_claims) >= WRITTEN_CLAIMS:
        del _written_claims[next(iter(_written_claims))]
    _written_claims[data.rstrip()] = claim
    return claim


def _decode_unknown_claim(data: bytes | Raw) -> ResourceClaim:
    fields = _trimmed(data)
    whole = _owned(fields)
    return whole_claim(_decode_parsed_claim(whole), whole, fields.get("spec", Raw(b"{}")))


def _decode_class(data: bytes | Raw) -> DeviceClass:
    # A copy: its raw parts would otherwise keep the whole list that it came in.
    return _decode_parsed_class(bytes(data))


_decode_whole_pod = decoder(Pod)


def decode_pod(data: bytes | Raw) -> Pod:
    """Decode a pod; the large spec of a pod that only changed its status is not decoded again."""
    if len(data) < LARGE_POD_BYTES:
        return _decode_whole_pod(data)
    return at_once(_large_pod_steps(data))


def decode_pod_in_steps(decode: Callable[[bytes | Raw], Pod], data: bytes | Raw) -> Steps[Pod]:
    """Decode a large pod and sum its requests, which are found with it from then on.

    ``decode`` is ``decode_pod`` or a decoder that is based on it.
    """
    pod = yield from _large_pod_steps(data)
    yield from sum_steps(pod)
    return pod if decode is decode_pod else decode(data)


def _large_pod_steps(data: bytes | Raw) -> Steps[Pod]:
    try:
        return (yield from large_pod_steps(data))
    except (msgspec.DecodeError, RecursionError):
        return _decode_whole_pod(data)


decode_node = decoder(Node)
decode_status = decoder(ApiStatus)
decode_metadata = decoder(PartialObjectMetadata)
decode_watch_event = decoder(WatchEvent)

_decode_page = decoder(_Page)
_decode_parsed_claim = decoder(ResourceClaim)
_decode_parsed_class = decoder(DeviceClass)

_written_claims: dict[bytes, ResourceClaim] = {}
"""By their texts, those that no watch has delivered, as far as is known; oldest first."""

_WITH_RAW_PARTS: dict[type, Callable[[bytes | Raw], Any]] = {
    ResourceClaim: _decode_claim,
    DeviceClass: _decode_class,
}


def decode_list(data: bytes) -> ListPage:
    """Split a list into its metadata and undecoded items."""
    page = _decode_page(data)
    return ListPage(page.metadata or ListMeta(), page.items or [])


def decode_items(
    decode: Callable[[bytes | Raw], T], items: Iterable[bytes | Raw]
) -> tuple[list[T], list[InvalidObject]]:
    """Decode the items of a page; returns the valid ones and the problems of the others."""
    objects: list[T] = []
    problems: list[InvalidObject] = []
    for item in items:
        try:
            objects.append(decode(item))
        except InvalidObject as problem:
            problems.append(problem)
    return objects, problems


_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode


def trim(data: bytes | Raw) -> bytes:
    """Copy an object without ``apiVersion``, ``kind`` and ``managedFields``.

    The kind follows from the object's position in the message, as in a list. ``managedFields`` are
    read by the API server only, and often half of the object.
    """
    return _owned(_trimmed(data))


def _trimmed(data: bytes | Raw) -> dict[str, Raw]:
    try:
        fields = _decode_fields(data)
    except RecursionError:
        fields = _decode_fields(without_managed_fields(data))
    fields.pop("kind", None)
    fields.pop("apiVersion", None)
    metadata = _decode_fields(fields["metadata"])
    if metadata.pop("managedFields", None) is not None:
        fields["metadata"] = Raw(_encode(metadata))
    return fields


def _owned(fields: dict[str, Raw]) -> bytes:
    # An encoder's bytes own up to half as much again as they need; these are kept for long.
    return bytes(memoryview(_encode(fields)))


_MANAGED_FIELDS = re.compile(rb'"managedFields"\s*:\s*(?=\[)')
_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_FIRST_WINDOW = 4096


def without_managed_fields(data: bytes | Raw) -> bytes:
    """Empty every ``managedFields`` of a JSON text, however deeply nested."""
    text = bytes(data)
    parts: list[bytes] = []
    position = 0
    while (found := _MANAGED_FIELDS.search(text, position)) is not None:
        parts += (text[position : found.end()], b"[]")
        position = _end_of_list(text, found.end())
    return b"".join((*parts, text[position:]))


def _end_of_list(text: bytes, start: int) -> int:
    """Return the end of the list that begins at ``start``."""
    size = _FIRST_WINDOW
    while True:
        depths = _depths(text[start : start + size])
        closed = np.flatnonzero(depths == 0)
        if len(closed):
            return start + int(closed[0]) + 1
        if start + size >= len(text):
            return len(text)
        size *= 4


def _depths(text: bytes) -> NDArray[np.int32]:
    """Return the number of open brackets after each byte of a JSON text, outside strings."""
    codes = np.frombuffer(_ESCAPED.sub(b"..", text), np.uint8)
    # Odd inside a string; wrapping around is harmless.
    quotes = np.cumsum(codes == ord('"'), dtype=np.uint8)
    # A bracket and a brace differ only in this bit.
    braces = codes | (ord("{") ^ ord("["))
    steps = (braces == ord("{")).astype(np.int8) - (braces == ord("}"))
    steps[quotes % 2 == 1] = 0
    return np.cumsum(steps, dtype=np.int32)


def _decode_leniently(kind: type[T], data: bytes | Raw, error: msgspec.DecodeError) -> T:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        raise InvalidObject(kind.__name__, "(unreadable)", str(error)) from error
    try:
        # Quoted numbers are accepted: old API servers and hand-written objects have them.
        # Encoded and decoded again, because only bytes have raw parts.
        text = msgspec.json.encode(_without_nulls(value))
        return msgspec.json.decode(text, type=kind, strict=False)
    except msgspec.ValidationError as still:
        raise InvalidObject(kind.__name__, _key_of(value), str(still)) from still


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


def _key_of(value: Any) -> str:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return "(unnamed)"
    namespace = metadata.get("namespace")
    name: str = metadata["name"]
    return f"{namespace}/{name}" if isinstance(namespace, str) and namespace else name
