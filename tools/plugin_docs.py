#!/usr/bin/env python3
"""Write docs/plugins: a page for each in-tree plugin, made of its docstring and its arguments.

With --check nothing is written; the exit code is 1 if a page is missing, old or left over.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ksched.cache.listers import Listers
from ksched.clock import LoopClock
from ksched.configuration.defaults import DEFAULT_MULTI_POINT
from ksched.configuration.extension_points import EXTENSION_POINTS
from ksched.configuration.plugin_args import ARGS
from ksched.framework import Action, Handle
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.framework.runtime.plugin_contract import implementation

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "plugins"
NOTE = "*Written by `make docs` from the plugin's docstring; edit that.*"

_ACTIONS = {
    Action.ADD: "added",
    Action.DELETE: "deleted",
    Action.UPDATE: "updated",
    Action.UPDATE_NODE_ALLOCATABLE: "allocatable changed",
    Action.UPDATE_NODE_LABEL: "labels changed",
    Action.UPDATE_NODE_TAINT: "taints changed",
    Action.UPDATE_NODE_DECLARED_FEATURE: "declared features changed",
    Action.UPDATE_POD_LABEL: "labels changed",
    Action.UPDATE_POD_SCALE_DOWN: "requests lowered",
    Action.UPDATE_POD_TOLERATION: "tolerations added",
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "scheduling gates removed",
}


def pages() -> dict[str, str]:
    """All pages by file name."""
    handle = cast(Handle, SimpleNamespace(listers=Listers(), clock=LoopClock(), profile_name=""))
    plugins = {name: factory(None, handle) for name, factory in sorted(IN_TREE.items())}
    found = {f"{name}.md": _page(name, plugin) for name, plugin in plugins.items()}
    found["README.md"] = _index(plugins)
    return found


def _index(plugins: dict[str, Any]) -> str:
    lines = ["# Plugins", "", NOTE, "", "| plugin | by default | in a sentence |", "|---|---|---|"]
    for name, plugin in plugins.items():
        first = _markdown(inspect.getdoc(plugin) or "").partition("\n\n")[0].replace("\n", " ")
        lines.append(f"| [{name}]({name}.md) | {_default(name)} | {first} |")
    return "\n".join(lines) + "\n"


def _page(name: str, plugin: Any) -> str:
    points = [
        point.label for point in EXTENSION_POINTS if implementation(plugin, point) is not None
    ]
    lines = [f"# {name}", "", NOTE, "", _markdown(inspect.getdoc(plugin) or ""), ""]
    lines += ["| | |", "|---|---|", f"| extension points | {', '.join(points)} |"]
    lines.append(f"| by default | {_default(name)} |")
    if events := _events(plugin):
        lines.append(f"| may wake a pod it rejected | {'; '.join(events)} |")
    lines += ["", *_arguments(name)]
    return "\n".join(lines).rstrip() + "\n"


def _markdown(docstring: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", docstring, flags=re.DOTALL)


def _default(name: str) -> str:
    for plugin, weight in DEFAULT_MULTI_POINT:
        if plugin == name:
            return f"on, weight {weight}" if weight else "on"
    return "off"


def _events(plugin: Any) -> list[str]:
    found: dict[str, None] = {}
    for registered in getattr(plugin, "events_to_register", tuple)():
        action = registered.event.action
        parts = [text for one, text in _ACTIONS.items() if one in action]
        if Action.UPDATE in action:
            parts = [text for one, text in _ACTIONS.items() if one in action and one <= 2]
            parts.append("updated")
        kind = registered.event.resource.value.rpartition("/")[2]
        found[f"{kind} {' or '.join(dict.fromkeys(parts))}"] = None
    return list(found)


def _arguments(name: str) -> Iterator[str]:
    model = ARGS.get(name)
    if model is None:
        return
    described = _attribute_docstrings(model)
    yield from ("## Arguments", "", "| name | default | meaning |", "|---|---|---|")
    defaults = model().model_dump(by_alias=True, mode="json")
    for field, info in model.model_fields.items():
        alias = info.alias or field
        text = _markdown(described.get(field, "")).replace("\n", " ")
        yield f"| `{alias}` | {_shown(defaults[alias])} | {text} |"


def _shown(value: Any) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_shown(one)}" for key, one in value.items() if one is not None)
    if isinstance(value, list):
        return " and ".join(_shown(one) for one in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _attribute_docstrings(model: type) -> dict[str, str]:
    """What is written below each attribute of a class."""
    body = ast.parse(inspect.getsource(model)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            found[statement.target.id] = inspect.cleandoc(str(following.value.value))
    return found


def problems() -> list[str]:
    """Pages that are missing, old or left over."""
    wanted = pages()
    found = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    return [
        f"docs/plugins/{name}: run make docs"
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]


def main() -> int:
    if "--check" in sys.argv[1:]:
        found = problems()
        print(*found, sep="\n", file=sys.stderr)
        return 1 if found else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
