"""Reading Kubernetes' protobuf encoding, which Go's typed clients use for the bodies they send.

Answers stay JSON, which those clients accept. The messages are described by
``protobuf_fields.txt``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from ksched.apiserver.served_resources import JsonObject
from ksched.apiserver.status_errors import bad_request
from ksched.clock import rfc3339, rfc3339_micro

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_GROUPS = {
    "": "core",
    "rbac.authorization.k8s.io": "rbac",
    "coordination.k8s.io": "coordination",
    "events.k8s.io": "events",
    "scheduling.k8s.io": "scheduling",
    "storage.k8s.io": "storage",
}
_UNIT_BITS = 64


class _Field(NamedTuple):
    name: str
    type: str
    repeated: bool
    is_map: bool
    keeps_zero: bool
    spliced: bool


def decode_protobuf(body: bytes) -> JsonObject:
    """Turn an envelope with one object into the object as JSON would have it; raises a 400."""
    if not body.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message: no prefix")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        type_meta = dict(_fields(envelope.get(1, b"")))
        version, kind = (type_meta.get(number, b"").decode() for number in (1, 2))
        obj = _message(_message_name(version, kind), envelope.get(2, b""))
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise bad_request(f"protobuf message cannot be read: {error!r}") from error
    return {"kind": kind, "apiVersion": version, **obj}


def _message_name(version: str, kind: str) -> str:
    if kind == "DeleteOptions":
        return "meta.DeleteOptions"
    group, slash, number = version.rpartition("/")
    return f"{_GROUPS.get(group, group)}.{number if slash else version}.{kind}"


@cache
def _schema() -> dict[str, dict[int, _Field]]:
    text = files("ksched.apiserver").joinpath("protobuf_fields.txt").read_text()
    schema: dict[str, dict[int, _Field]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        message, _, rest = line.partition(": ")
        schema[message.rstrip(":")] = dict(_field(part) for part in rest.split(", ") if part)
    return schema


def _field(text: str) -> tuple[int, _Field]:
    number, name, kind = text.split(" ")
    spliced, kind = kind.startswith("^"), kind.removeprefix("^")
    keeps_zero, kind = kind.startswith("?"), kind.removeprefix("?")
    repeated, is_map = kind.startswith("*"), kind.startswith("map:")
    kind = kind.removeprefix("*").removeprefix("map:")
    return int(number), _Field(name, kind, repeated, is_map, keeps_zero, spliced)


def _message(name: str, data: bytes) -> JsonObject:
    schema = _schema()[name]
    result: JsonObject = {}
    for number, raw in _fields(data):
        field = schema.get(number)
        if field is None:
            continue
        if field.is_map:
            key, value = dict(_fields(raw)).get(1, b"").decode(), dict(_fields(raw)).get(2, b"")
            result.setdefault(field.name, {})[key] = _value(field.type, value)
        elif field.repeated:
            result.setdefault(field.name, []).append(_value(field.type, raw))
        else:
            value = _value(field.type, raw)
            if field.spliced:
                result.update(value)
            elif field.keeps_zero or value not in (None, "", 0, False, {}):
                result[field.name] = value
    return result


def _value(kind: str, raw: Any) -> Any:
    match kind:
        case "string":
            return raw.decode()
        case "bytes":
            return base64.b64encode(raw).decode()
        case "bool":
            return bool(raw)
        case "int32" | "int64":
            return raw - (1 << _UNIT_BITS) if raw >> (_UNIT_BITS - 1) else raw
        case "Quantity":
            return dict(_fields(raw)).get(1, b"").decode()
        case "IntOrString":
            parts = dict(_fields(raw))
            return parts.get(3, b"").decode() if parts.get(1) else _value("int32", parts.get(2, 0))
        case "Time" | "MicroTime":
            parts = dict(_fields(raw))
            if not parts:
                return None
            seconds = _value("int64", parts.get(1, 0)) + parts.get(2, 0) / 1e9
            return rfc3339(seconds) if kind == "Time" else rfc3339_micro(seconds)
        case _:
            return _message(kind, raw)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield field numbers with their raw values: ints, or bytes where a length is given."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, position = _varint(data, position)
            yield number, value
        elif wire_type == 2:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise ValueError("message is cut short")
            yield number, data[position : position + length]
            position += length
        elif wire_type in (1, 5):
            width = 8 if wire_type == 1 else 4
            yield number, int.from_bytes(data[position : position + width], "little")
            position += width
        else:
            raise ValueError(f"unknown wire type {wire_type}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
