"""A subclass calls its parent's constructor: one that skips it has only half of its parent."""

from __future__ import annotations

import ast

from lab.source_tree import ROOT


def skipped(trees: list[ast.Module]) -> list[str]:
    """Classes with a constructor that does not call that of a parent defined here."""
    classes = {
        node.name: node
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    return [
        name
        for name, node in classes.items()
        if (constructor := _constructor(node)) is not None
        and any(_constructs(base, classes) for base in node.bases)
        and "super().__init__(" not in ast.unparse(constructor)
        and ast.unparse(constructor.body[-1]) != "..."
    ]


def _constructs(base: ast.expr, classes: dict[str, ast.ClassDef]) -> bool:
    """Whether a base, or one of its own, is defined here and has a constructor."""
    node = classes.get(ast.unparse(base).partition("[")[0])
    if node is None:
        return False
    return _constructor(node) is not None or any(_constructs(one, classes) for one in node.bases)


def _constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    methods = (one for one in node.body if isinstance(one, ast.FunctionDef))
    return next((one for one in methods if one.name == "__init__"), None)


def test_a_skipped_parent_is_found() -> None:
    parent = "class A:\n    def __init__(self): self.a = 1\nclass B(A): pass\n"
    child = "class C(B):\n    def __init__(self): self.c = 1\n"
    assert skipped([ast.parse(parent + child)]) == ["C"]
    assert skipped([ast.parse(parent + child.replace("self.c = 1", "super().__init__()"))]) == []
    assert skipped([ast.parse(child)]) == []


def test_every_parent_is_constructed() -> None:
    trees = [ast.parse(path.read_text()) for path in sorted((ROOT / "ksched").rglob("*.py"))]
    assert skipped(trees) == []
