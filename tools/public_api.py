#!/usr/bin/env python3
"""Write docs/public_api.txt: every name that others may depend on, with its signature.

The rules are in docs/public_api.md. A test compares the file with the code, so that no such name
changes unnoticed.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType

PAGE = Path(__file__).resolve().parent.parent / "docs" / "public_api.txt"
MODULES = (
    "ksched",
    "ksched.errors",
    "ksched.framework",
    "ksched.framework.assumed_volumes",
    "ksched.framework.counters",
    "ksched.framework.diagnosis",
    "ksched.framework.freshness",
    "ksched.framework.memoizing",
    "ksched.framework.node_columns",
    "ksched.framework.time_slices",
    "ksched.framework.victims",
    "ksched.testing",
)
_QUOTED = re.compile(r"(: |-> )'([^']*)'")
_UNPRINTABLE = re.compile(r"<(class|function) [^>]*>")


def public_names(module: ModuleType) -> list[str]:
    """The names of ``__all__``, or those that the module defines itself."""
    exported = getattr(module, "__all__", None)
    if exported is not None:
        return sorted(exported)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


def lines_of(path: str, value: object) -> Iterator[str]:
    """A name and, of a class, its public members."""
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {path}({bases})" if bases else f"class {path}"
        for name in sorted({**vars(value), **inspect.get_annotations(value)}):
            if not name.startswith("_") or name == "__init__":
                yield from _member(f"{path}.{name}", value, name)
    elif callable(value):
        yield _signature(path, value)
    else:
        yield path


def _member(path: str, owner: type, name: str) -> Iterator[str]:
    value = inspect.getattr_static(owner, name, None)
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if isinstance(value, property | cached_property) or not inspect.isfunction(value):
        yield path
    else:
        yield _signature(path, value)


def _signature(path: str, value: object) -> str:
    try:
        text = str(inspect.signature(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        text = "(...)"
    prefix = "async " if inspect.iscoroutinefunction(value) else ""
    text = _UNPRINTABLE.sub("...", _QUOTED.sub(r"\1\2", text))
    return f"{prefix}{path}{text}"


def listing() -> str:
    lines: list[str] = []
    for name in MODULES:
        module = import_module(name)
        for one in public_names(module):
            lines += lines_of(f"{name}.{one}", getattr(module, one))
    return "\n".join(lines) + "\n"


def main() -> int:
    PAGE.write_text(listing())
    return 0


if __name__ == "__main__":
    sys.exit(main())
