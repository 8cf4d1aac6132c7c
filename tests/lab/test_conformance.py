"""The harness of Kubernetes' own tests: how their report is read, and that its files agree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lab.conformance import GROUPS, Outcome, main, read_report, table, verdict

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"
GO_MODULE = ROOT / "tools" / "assets"


def spec(state: str, attempts: int = 1, kind: str = "It", **more: Any) -> dict[str, Any]:
    return {
        "ContainerHierarchyTexts": ["[sig-scheduling] Limits", ""],
        "LeafNodeText": f"is {state}",
        "LeafNodeType": kind,
        "State": state,
        "NumAttempts": attempts,
        "RunTime": 1_500_000_000,
        **more,
    }


def test_what_the_filters_left_out_is_not_counted() -> None:
    reports = [spec("passed"), spec("skipped", 0), spec("skipped"), spec("failed")]

    outcomes = read_report(json.dumps([{"SpecReports": reports}]))

    assert [one.state for one in outcomes] == ["passed", "skipped", "failed"]
    assert outcomes[0].name == "[sig-scheduling] Limits is passed"
    assert outcomes[0].seconds == 1.5


def test_a_failed_preparation_counts_a_passed_one_does_not() -> None:
    suite = {"ContainerHierarchyTexts": None, "LeafNodeText": ""}
    reports = [
        spec("passed", 0, "BeforeSuite", **suite),
        spec("failed", 0, "AfterSuite", Failure={"Message": "no nodes"}, **suite),
    ]

    (outcome,) = read_report(json.dumps([{"SpecReports": reports}]))

    assert outcome == Outcome("AfterSuite", "failed", 1.5, "no nodes")


def test_the_table_has_the_reason_of_what_failed() -> None:
    outcomes = [Outcome("b", "failed", 2.0, "timed out\nsee above"), Outcome("a", "passed", 1, "")]

    assert table(outcomes).splitlines() == [
        "passed      1.0 s  a",
        "failed      2.0 s  b",
        "                   timed out",
    ]


@pytest.mark.parametrize(
    ("states", "wanted", "line", "code"),
    [
        pytest.param(["passed"] * 2, 2, "2 of 2 passed", 0, id="all"),
        pytest.param(["passed", "failed"], 2, "1 of 2 passed", 1, id="one failed"),
        pytest.param(["passed", "skipped"], 2, "1 of 2 passed", 1, id="one skipped"),
        pytest.param(
            ["passed"], 2, "1 of 2 passed; 1 ran, 2 were expected", 1, id="one is missing"
        ),
        pytest.param(["passed"], None, "1 of 1 passed", 0, id="only some"),
        pytest.param([], None, "0 of 0 passed", 1, id="none"),
    ],
)
def test_verdict(states: list[str], wanted: int | None, line: str, code: int) -> None:
    outcomes = [Outcome(f"test {number}", state, 1, "") for number, state in enumerate(states)]

    assert verdict(outcomes, wanted) == (line, code)


def test_without_the_programs_one_line_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    assert main([f"--out={tmp_path}"]) == 1

    assert "kube-controller-manager not found" in capsys.readouterr().err


def test_the_page_lists_as_many_tests_as_are_run() -> None:
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    listed = {
        section.split(maxsplit=1)[0].lower(): section.count("\n- ") for section in sections[1:]
    }

    assert {name: listed[name] for name in GROUPS} == {
        name: group.number for name, group in GROUPS.items()
    }


def test_the_go_module_has_what_the_harness_starts() -> None:
    suite = (GO_MODULE / "conformance" / "suite_test.go").read_text()

    for package in ("e2e/dra", "e2e/scheduling", "e2e/testing-manifests"):
        assert f'"k8s.io/kubernetes/test/{package}"' in suite
    assert '"k8s.io/kubernetes/cmd/kube-controller-manager"' in (GO_MODULE / "tools.go").read_text()
