"""Covers ``ksched.commands.demo``, ``ksched.demo.demo_workloads`` and ``ksched.demo.plain_lines``
too.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from ksched import cli


def test_json_prints_a_node_or_a_reason_for_every_pod(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["demo", "--once", "--json", "--nodes", "6", "--pods", "20"]) == 0
    out = capsys.readouterr()
    ended = json.loads(out.out)
    assert ended.keys() == {"seed", "nodes", "pods", "decisions", "decision_seconds"}
    assert ended["pods"]
    for pod in ended["pods"]:
        assert pod.keys() == {"namespace", "name", "node", "phase", "reason"}
        assert (pod["node"] is None) != (pod["reason"] is None)
    assert ended["decisions"]["scheduled"] >= len(ended["pods"]) - 1
    assert out.err == ""


def test_without_a_terminal_there_is_a_line_per_decision(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.execute(["demo", "--speed", "0", "--nodes", "6", "--pods", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "    0.0s  == 6 nodes in three zones register with the API server."
    assert any(" -> node-" in line and "nodes fit" in line for line in lines)
    assert "\x1b" not in "".join(lines)
    assert any(line.startswith("49 pods on ") and line.endswith(" waiting") for line in lines)


def test_every_problem_of_the_flags_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["demo", "--nodes", "3", "--pods", "0", "--speed", "-1"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: --nodes: must be at least 6, got 3",
        "error: --pods: must be at least 1, got 0",
        "error: --speed: must not be negative, got -1",
    ]


def test_it_begins_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[str] = []

    async def run(self: Any, console: Any, hints: Any) -> None:
        notices.append(self._board.notice)

    monkeypatch.setattr("ksched.demo.show._Show.run", run)

    assert cli.execute(["demo", "--once", "--json"]) == 0
    assert notices == [""]


@pytest.mark.parametrize("flag", ["--json", "--once"])
def test_help_mentions_the_flags(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.execute(["demo", "--help"])
    assert flag in capsys.readouterr().out
