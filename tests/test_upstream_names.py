"""A reader of kube-scheduler finds its functions and types in ``ksched`` by their names."""

from __future__ import annotations

import re

from lab.source_tree import ROOT

LISTED = {
    line.split()[1]: line.split()[0]
    for line in (ROOT / "tests/upstream_names.txt").read_text().splitlines()
    if not line.startswith("#")
}
WORDS = {
    word
    for path in (ROOT / "ksched").rglob("*.py")
    for word in re.findall(r"[A-Za-z_]\w*", path.read_text())
}
TABLE = [
    line.split("|")
    for line in (ROOT / "docs/upstream_names.md").read_text().splitlines()
    if line.startswith("| `")
]


def snake_case(name: str) -> str:
    split = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", split).lower()


def is_found(name: str) -> bool:
    snake = snake_case(name)
    return not WORDS.isdisjoint({name, name[0].upper() + name[1:], snake, f"_{snake}"})


def test_snake_case() -> None:
    assert snake_case("isSchedulableAfterCSINodeUpdated") == "is_schedulable_after_csi_node_updated"


def test_nine_of_ten_names_are_found() -> None:
    assert len(LISTED) >= 200
    missing = [f"{name} ({file})" for name, file in LISTED.items() if not is_found(name)]
    assert len(missing) <= len(LISTED) / 10, missing


def test_the_others_are_in_the_table_with_a_reason() -> None:
    explained = {name for row in TABLE for name in re.findall(r"`(\w+)`", row[1])}
    assert explained == {name for name in LISTED if not is_found(name)}
    assert all(len(row[2].split()) >= 4 for row in TABLE), "a reason is a sentence"
