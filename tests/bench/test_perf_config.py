"""Reading the workloads of scheduler_perf."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.perf_config import PerfConfigError, load, render

CONFIG = """\
- name: Plain
  workloadTemplate:
  - {opcode: createNodes, countParam: $nodes}
  - {opcode: createPods, count: 3}
  - {opcode: barrier}
  workloads:
  - {name: tiny, labels: [integration-test], params: {nodes: 2}}
  - {name: large, labels: [performance], params: {nodes: 500, delay: 5s}}
  - {name: other, params: {nodes: 7}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "misc").mkdir()
    (tmp_path / "misc/performance-config.yaml").write_text(CONFIG)
    return tmp_path


def test_a_workload_for_measurements_is_taken_and_its_numbers_fill_in_the_counts(
    root: Path,
) -> None:
    case = load(root, "misc/Plain")

    assert case.workload == "large"
    assert [case.count(operation) for operation in case.operations] == [500, 3, 1]
    assert load(root, "misc/Plain/other").workload == "other"


def test_a_part_divides_the_numbers_but_leaves_one(root: Path) -> None:
    assert load(root, "misc/Plain", part=10).params == {"nodes": 50, "delay": "5s"}
    assert load(root, "misc/Plain/tiny", part=10).params == {"nodes": 1}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("other/Plain", "does not exist"),
        ("misc/Fancy", "no such test case, misc has Plain"),
        ("misc/Plain/huge", "no such workload, it has tiny, large, other"),
    ],
)
def test_an_error_names_what_there_is(root: Path, wanted: str, message: str) -> None:
    with pytest.raises(PerfConfigError, match=message):
        load(root, wanted)


def test_templates_are_filled_in() -> None:
    text = "pod-{{.Index}} of {{ .Count }}, port 8{{ Mod .Index 12 }}, {{DivideInt 30000 .Count}}Mi"

    assert render(text, 25, 40) == "pod-25 of 40, port 81, 750Mi"
    with pytest.raises(PerfConfigError, match=r"Upper \.Index"):
        render("{{ Upper .Index }}", 0, 1)
