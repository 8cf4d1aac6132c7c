"""Decisions of a real kube-scheduler v1.36, made again.

Each recorded cluster was judged by kube-scheduler's default profile, pod by pod; ksched must give
the same verdict, the same message and the same score of every plugin on every node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ksched.framework.plugins.in_tree import IN_TREE
from lab.recordings import (
    build_decider,
    find_disagreements,
    read_recordings,
    scoring_plugins,
)

RECORDINGS = read_recordings(Path(__file__).parent / "data" / "filter-and-score.jsonl.gz")


def test_every_recorded_plugin_is_compared() -> None:
    assert scoring_plugins(RECORDINGS) <= IN_TREE.keys()
    assert sum(len(recording["decisions"]) for recording in RECORDINGS) == 1200


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: f"seed {one['seed']}")
async def test_decides_as_kube_scheduler_did(recording: Any) -> None:
    decider = build_decider(recording["cluster"])
    report = []
    for decision in recording["decisions"]:
        report += await find_disagreements(decider, decision)

    assert not report, "\n" + "\n".join(report)
