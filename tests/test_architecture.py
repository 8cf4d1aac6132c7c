"""docs/architecture.md shows the layers that tests/test_tidy.py enforces, and files that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from lab.source_tree import imports

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
MAX_FILES = 3
CHANGES = {
    "a new columnar filter",
    "a new extension point",
    "a new watched kind",
    "a new pod field in a filter",
    "a new reason",
    "a new backoff",
}


def enforced_layers() -> list[set[str]]:
    """``LAYERS`` of the tidy test, read without importing it."""
    tree = ast.parse((ROOT / "tests" / "test_tidy.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "LAYERS":
            assert node.value is not None
            layers: list[set[str]] = ast.literal_eval(node.value)
            return layers
    raise AssertionError("tests/test_tidy.py has no LAYERS")


def rows() -> dict[str, list[str]]:
    """The table of changes: the files that each touches."""
    table = PAGE[PAGE.index("## Six changes") :]
    found = re.findall(r"^\| (a new [^|]+?) \| ([^|]+) \| [^|]+ \|$", table, re.MULTILINE)
    return {change: re.findall(r"`([^`]+)`", files) for change, files in found}


def test_the_picture_shows_the_layers() -> None:
    drawn = {
        int(level): {name if name == "ksched" else f"ksched.{name}" for name in names.split(" | ")}
        for level, names in re.findall(r'^    L(\d+)\["([^"]+)"\]', PAGE, re.MULTILINE)
    }
    assert drawn == dict(enumerate(enforced_layers()))


def test_the_arrows_go_from_each_layer_to_the_one_below() -> None:
    arrows = re.findall(r"^    L(\d+)\[.*\] --> L(\d+)$", PAGE, re.MULTILINE)
    count = len(enforced_layers())
    assert {(int(upper), int(lower)) for upper, lower in arrows} == {
        (level, level - 1) for level in range(1, count)
    }


def test_every_package_is_described() -> None:
    described = PAGE[PAGE.index("## What is where") : PAGE.index("## Six changes")]
    packages = {
        path.parent.relative_to(ROOT / "ksched").as_posix().replace("/", ".")
        for path in (ROOT / "ksched").glob("*/__init__.py")
    }
    assert {name for name in packages if f"`{name}`" not in described} == set()


def test_the_six_changes_are_told() -> None:
    assert rows().keys() == CHANGES


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_change_touches_at_most_three_files(change: str) -> None:
    assert 1 <= len(rows()[change]) <= MAX_FILES


def test_every_file_on_the_page_exists() -> None:
    named = set(re.findall(r"`((?:ksched|config)/[^`]+)`", PAGE))
    linked = {f"docs/{path}" for path in re.findall(r"\]\(([^)]+)\)", PAGE)}
    assert len(named) > len(CHANGES)
    assert {path for path in named | linked if not (ROOT / path).resolve().exists()} == set()


def test_plugin_authors_are_told_what_plugins_in_the_tree_import() -> None:
    told = (ROOT / "docs" / "writing_plugins.md").read_text()
    plugins = "ksched.framework.plugins"
    imported = {
        ".".join(name.split(".")[: 3 if name.startswith("ksched.framework.") else 2])
        for path in (ROOT / plugins.replace(".", "/")).rglob("*.py")
        for _, name in imports(ast.parse(path.read_text()))
    }
    assert {name for name in imported - {plugins} if f"`{name}`" not in told} == set()
