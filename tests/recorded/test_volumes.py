"""Decisions of a real kube-scheduler v1.36 about pods with volumes, made again.

Claims are bound, unbound and immediate, or wait for their first consumer; volumes are static, in
zones, on nodes, or to be provisioned; nodes have limits of their CSI drivers.
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

RECORDINGS = read_recordings(Path(__file__).parent / "data" / "volumes.jsonl.gz")


def test_every_recorded_plugin_is_compared() -> None:
    assert scoring_plugins(RECORDINGS) <= IN_TREE.keys()
    assert sum(len(recording["decisions"]) for recording in RECORDINGS) == 300


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: f"seed {one['seed']}")
async def test_decides_as_kube_scheduler_did(recording: Any) -> None:
    decider = build_decider(recording["cluster"])
    report = []
    for decision in recording["decisions"]:
        report += await find_disagreements(decider, decision)

    assert not report, "\n" + "\n".join(report)
