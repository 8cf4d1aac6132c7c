"""Problems in the words of Kubernetes: ``<path>: Invalid value: <value>: <detail>``.

Paths are spelled as in the file (``profiles[0].pluginConfig[2].args.shape``); values as JSON
(k8s.io/apimachinery/pkg/util/validation/field, v1.36), without secrets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from pydantic import BaseModel, ValidationError

from ksched.redaction import is_secret_key, redact

Location = tuple[str | int, ...]


def path_of(location: Iterable[str | int]) -> str:
    """Spell a location: ``("profiles", 0, "plugins")`` is ``profiles[0].plugins``."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def invalid(path: str, value: Any, detail: str) -> str:
    return f"{path}: Invalid value: {_shown(value, path)}: {detail}"


def required(path: str, detail: str = "") -> str:
    return f"{path}: Required value: {detail}" if detail else f"{path}: Required value"


def duplicate(path: str, value: Any) -> str:
    return f"{path}: Duplicate value: {_shown(value, path)}"


def unsupported(path: str, value: Any, supported: Iterable[str]) -> str:
    values = ", ".join(_shown(item) for item in supported)
    detail = f": supported values: {values}" if values else ""
    return f"{path}: Unsupported value: {_shown(value, path)}{detail}"


def forbidden(path: str, detail: str) -> str:
    return f"{path}: Forbidden: {detail}"


def _shown(value: Any, path: str = "") -> str:
    plain = json.loads(json.dumps(value, default=_plain))
    content = redact(plain, is_secret=any(map(is_secret_key, path.split("."))))
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    return msgspec.to_builtins(value)


# -- decoding -----------------------------------------------------------------------------------

_WRONG_TYPES = {
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be a string",
    "bool_type": "must be a boolean",
    "tuple_type": "must be a list",
    "model_type": "must be an object",
}

_RANGE = {"greater_than_equal": "ge", "less_than_equal": "le"}
_WIDTHS = {-(2**31): 32, 2**31 - 1: 32, -(2**63): 64, 2**63 - 1: 64}
"""Bounds that are those of a number type of the API, by its width."""


def describe(error: ValidationError, under: Location = ()) -> list[tuple[Location, str]]:
    """Where and what: every problem that decoding found, in the order of the fields.

    ``under`` is where in the file the decoded object stands.
    """
    problems: list[tuple[Location, str]] = []
    for item in error.errors(include_url=False):
        kind, location = item["type"], (*under, *item["loc"])
        path = path_of(location)
        if kind == "default_factory_not_called":
            continue  # a consequence of another problem
        if kind == "extra_forbidden":
            problems.append((location, f'unknown field "{path}"'))
        elif kind == "missing":
            problems.append((location, required(path)))
        elif kind == "value_error":
            problems.append((location, f"{path}: {item['ctx']['error']}"))
        elif kind in _RANGE and (bits := _WIDTHS.get(item["ctx"][_RANGE[kind]])):
            problems.append((location, invalid(path, item["input"], f"must fit in int{bits}")))
        else:
            detail = _WRONG_TYPES.get(kind, item["msg"])
            problems.append((location, invalid(path, item["input"], detail)))
    return problems
