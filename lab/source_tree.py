"""The source tree as data: modules, what they import, and cycles between them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
VERSION = "ksched.__version__"  # a constant, importable from every layer


def module_name(path: PurePosixPath) -> str:
    """``ksched/api/quantity.py`` -> ``ksched.api.quantity``; a package is named by its folder."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and module of every import of ``ksched``, those under ``TYPE_CHECKING`` included."""
    for line, name in _imported(tree):
        if name.split(".")[0] == "ksched":
            yield line, name


def libraries(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and top-level name of every import of a third-party library."""
    for line, name in _imported(tree):
        top = name.split(".")[0]
        if top != "ksched" and top not in sys.stdlib_module_names:
            yield line, top


def _imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner != VERSION:
                    yield node.lineno, inner if is_module(inner) else node.module


def dotted(node: ast.expr) -> str:
    """``a.b().c`` as text; empty for anything that is not made of names."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    if isinstance(node, ast.Call):
        owner = dotted(node.func)
        return f"{owner}()" if owner else ""
    return ""


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others; sorted."""
    reachable = {module: _reachable(graph, module) for module in graph}
    groups = {
        tuple(sorted(other for other in reached if module in reachable.get(other, ())))
        for module, reached in reachable.items()
        if module in reached
    }
    return [list(group) for group in sorted(groups)]


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        module = ahead.pop()
        if module not in found:
            found.add(module)
            ahead += graph.get(module, ())
    return found


def has_logic(tree: ast.AST) -> bool:
    """Whether a function does more than declare itself, as those of a Protocol do."""
    return any(
        not all(isinstance(step, ast.Expr | ast.Pass) for step in node.body)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
