"""Strict decoding of core/v1 types that occur inside plugin arguments.

The structs of ``ksched.api`` ignore unknown fields, because an API server may be newer than ksched.
In a configuration file an unknown field is a mistake, and every mistake is reported.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from pydantic import PlainSerializer, PlainValidator, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from ksched.api.objects import NodeAffinity, TopologySpreadConstraint

Location = tuple[str | int, ...]
StructType = TypeVar("StructType", bound=msgspec.Struct)

_SCALARS: dict[type, tuple[str, str, Any]] = {
    str: ("string_type", "must be a string", ""),
    int: ("int_type", "must be an integer", 0),
    bool: ("bool_type", "must be a boolean", False),
}


def decode_struct(struct: type[StructType], data: Any) -> StructType:
    """Convert data to a struct, absent fields to zero; raise all problems as ValidationError."""
    if isinstance(data, struct):
        return data
    problems: list[InitErrorDetails] = []
    value = _convert(struct, data, (), problems)
    if problems:
        raise ValidationError.from_exception_data(struct.__name__, problems)
    assert isinstance(value, struct)
    return value


def _convert(wanted: Any, data: Any, at: Location, problems: list[InitErrorDetails]) -> Any:
    wanted = _without_bounds(wanted)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        (inner,) = (a for a in arguments if a is not type(None))
        return _convert(inner, data, at, problems)
    if origin is list:
        if not isinstance(data, list | tuple):
            return _refuse(problems, at, data, "list_type", "must be a list")
        return [_convert(arguments[0], item, (*at, i), problems) for i, item in enumerate(data)]
    if origin is dict or issubclass(wanted, msgspec.Struct):
        if not isinstance(data, dict):
            return _refuse(problems, at, data, "dict_type", "must be an object")
        if origin is dict:
            return {k: _convert(arguments[1], v, (*at, k), problems) for k, v in data.items()}
        return _convert_fields(wanted, data, at, problems)
    kind, text, _ = _SCALARS[wanted]
    if type(data) is not wanted:
        return _refuse(problems, at, data, kind, text)
    return data


def _convert_fields(
    struct: type[msgspec.Struct],
    data: dict[str, Any],
    at: Location,
    problems: list[InitErrorDetails],
) -> Any:
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    for key in data.keys() - fields.keys():
        _refuse(problems, (*at, key), data[key], "extra_forbidden", "unknown field")
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if data.get(key) is not None:
            values[field.name] = _convert(field.type, data[key], (*at, key), problems)
        elif field.required:
            values[field.name] = _zero(field.type)
    return struct(**values)


def _without_bounds(wanted: Any) -> Any:
    """Return the type without bounds; values are checked with the other arguments."""
    return get_args(wanted)[0] if get_origin(wanted) is Annotated else wanted


def _zero(wanted: Any) -> Any:
    wanted = _without_bounds(wanted)
    return wanted() if issubclass(wanted, msgspec.Struct) else _SCALARS[wanted][2]


def _refuse(
    problems: list[InitErrorDetails], at: Location, data: Any, kind: str, text: str
) -> None:
    error = PydanticCustomError(kind, text)
    problems.append(InitErrorDetails(type=error, loc=at, input=data))


AddedAffinity = Annotated[
    NodeAffinity,
    PlainValidator(lambda data: decode_struct(NodeAffinity, data)),
    PlainSerializer(msgspec.to_builtins),
]
SpreadConstraint = Annotated[
    TopologySpreadConstraint,
    PlainValidator(lambda data: decode_struct(TopologySpreadConstraint, data)),
    PlainSerializer(msgspec.to_builtins),
]
