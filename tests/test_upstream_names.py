"""A reader of kube-scheduler finds its functions and types in ``ksched`` by their names.

The list is made of kube-scheduler's sources by the rule in ``tools/upstream_names.py``, not of what
is found here: from the files about scheduling, queue, cache, preemption, runtime, plugins, metrics
and leader election, every function of at least ten lines and every exported struct or interface.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from lab.source_tree import ROOT
from tools.upstream_names import names_in

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


GO = """\
package queue

type heapItem struct {
}

type Nominator interface {
}

type PodNominator interface {
}

func (n *nominator) Len() int {
\treturn 0
}

func (n *nominator) addNominatedPod(name string) {
BODY}

func NewNominator() *nominator {
BODY}
"""


def test_the_list_has_exported_types_and_long_functions_of_more_than_one_word() -> None:
    text = GO.replace("BODY", "\tf()\n" * 8)
    assert list(names_in(text)) == ["PodNominator", "addNominatedPod"]
    assert list(names_in(GO.replace("BODY", "\tf()\n"))) == ["PodNominator"]


@pytest.mark.real
def test_the_list_is_what_the_sources_say() -> None:
    tool = ROOT / "tools" / "upstream_names.py"
    ran = subprocess.run([sys.executable, tool, "--check"], check=False, timeout=60)
    assert ran.returncode == 0, "run tools/upstream_names.py"


def test_nine_of_ten_names_are_found() -> None:
    assert len(LISTED) >= 200
    missing = [f"{name} ({file})" for name, file in LISTED.items() if not is_found(name)]
    assert len(missing) <= len(LISTED) / 10, missing


def test_the_others_are_in_the_table_with_a_reason() -> None:
    explained = {name for row in TABLE for name in re.findall(r"`(\w+)`", row[1])}
    assert explained == {name for name in LISTED if not is_found(name)}
    assert all(len(row[2].split()) >= 4 for row in TABLE), "a reason is a sentence"
