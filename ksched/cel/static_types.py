"""The types of the checker.

Equal types are one object, so that they are compared by identity. Their size is bounded, because a
short expression can have a type of exponential size (``{a: a}``, bound repeatedly).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from ksched.cel.errors import CompileError

LARGEST_TYPE = 4096
"""Limit of the nodes of a type; practical expressions have far fewer."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Type:
    """``kind`` is ``param`` for type variables, ``struct`` for objects, else the type's name."""

    kind: str
    name: str
    params: tuple[Type, ...] = ()
    size: int = 1

    def __str__(self) -> str:
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"


_known: WeakValueDictionary[tuple[str, str, tuple[Type, ...]], Type] = WeakValueDictionary()


def _build(kind: str, name: str, params: tuple[Type, ...] = ()) -> Type:
    found = _known.get((kind, name, params))
    if found is None:
        size = 1 + sum(param.size for param in params)
        if size > LARGEST_TYPE:
            raise CompileError(f"compilation failed: a type has more than {LARGEST_TYPE} parts")
        found = _known[kind, name, params] = Type(kind, name, params, size)
    return found


BOOL: Final = _build("bool", "bool")
BYTES: Final = _build("bytes", "bytes")
DOUBLE: Final = _build("double", "double")
INT: Final = _build("int", "int")
UINT: Final = _build("uint", "uint")
STRING: Final = _build("string", "string")
NULL: Final = _build("null", "null_type")
DYN: Final = _build("dyn", "dyn")
ANY: Final = _build("any", "google.protobuf.Any")
ERROR: Final = _build("error", "error")
DURATION: Final = _build("duration", "google.protobuf.Duration")
TIMESTAMP: Final = _build("timestamp", "google.protobuf.Timestamp")
TYPE: Final = _build("type", "type")

_SHORT = {"any": "any", "duration": "duration", "timestamp": "timestamp", "null": "null"}


def list_of(element: Type) -> Type:
    return _build("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return _build("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    return _build("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    return _build("type", "type", (value,))


def struct(name: str) -> Type:
    return _build("struct", name)


def opaque(name: str) -> Type:
    return _build("opaque", name)


def param(name: str) -> Type:
    return _build("param", name)


def with_params(original: Type, params: tuple[Type, ...]) -> Type:
    """The same type constructor applied to other types."""
    return original if params == original.params else _build(original.kind, original.name, params)


def is_dyn(candidate: Type) -> bool:
    return candidate.kind in ("dyn", "any")


def is_dyn_or_error(candidate: Type) -> bool:
    return candidate.kind in ("dyn", "any", "error")


def unwrap_optional(candidate: Type) -> tuple[Type, bool]:
    """The type inside an optional type, and whether it was one."""
    if candidate.kind == "opaque" and candidate.name == "optional_type":
        return candidate.params[0], True
    return candidate, False


def describe(candidate: Type) -> str:
    """Format a type for messages."""
    if candidate.kind == "error":
        return "!error!"
    if candidate.kind in _SHORT:
        return _SHORT[candidate.kind]
    if not candidate.params:
        return candidate.name
    return f"{candidate.name}({', '.join(map(describe, candidate.params))})"
