"""Decisions of a real kube-scheduler v1.36 about pods with resource claims, made again.

Verdict, message, the score of every plugin, and what became of the claims: each device, in order,
the configurations, where it can be used, for whom it is reserved. Also for the claims that
kube-scheduler made for extended resources.

Covers ``ksched.devices.node_views`` and, in ``ksched.framework.plugins.dynamic_resources``,
``ksched.framework.plugins.dynamic_resources.attempt``,
``ksched.framework.plugins.dynamic_resources.binding_conditions``,
``ksched.framework.plugins.dynamic_resources.claim_binder``,
``ksched.framework.plugins.dynamic_resources.claim_writer``,
``ksched.framework.plugins.dynamic_resources.device_finder``,
``ksched.framework.plugins.dynamic_resources.extended_resources``,
``ksched.framework.plugins.dynamic_resources.pod_claims`` and
``ksched.framework.plugins.dynamic_resources.verdicts_by_view``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ksched.devices import effort
from ksched.framework.plugins.dynamic_resources import device_finder, verdicts_by_view
from lab.device_recordings import DeviceDecider
from lab.recordings import read_recordings

RECORDINGS = read_recordings(Path(__file__).parent / "data" / "dra.jsonl.gz")


def test_all_kinds_of_outcomes_were_recorded() -> None:
    decisions = [one for recording in RECORDINGS for one in recording["decisions"]]

    assert len(decisions) == 396
    assert {one["verdict"].get("reason", "node") for one in decisions} == {
        *("node", "Unschedulable", "SchedulerError", "gated")
    }


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: f"seed {one['seed']}")
async def test_decides_as_kube_scheduler_did(recording: Any) -> None:
    decider = DeviceDecider(recording["cluster"])
    report = []
    for decision in recording["decisions"]:
        report += await decider.find_disagreements(decision)

    assert not report, "\n" + "\n".join(report)


@pytest.mark.parametrize("recording", RECORDINGS[::4], ids=lambda one: f"seed {one['seed']}")
async def test_decides_the_same_when_every_search_is_long(
    recording: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (device_finder, verdicts_by_view):
        monkeypatch.setattr(module, "MOMENT_SECONDS", -1.0)
    monkeypatch.setattr(effort, "STEPS_PER_LOOK", 1)
    decider = DeviceDecider(recording["cluster"])
    report = []
    for decision in recording["decisions"]:
        report += await decider.find_disagreements(decision)

    assert not report, "\n" + "\n".join(report)
