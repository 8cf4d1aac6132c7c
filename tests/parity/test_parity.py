"""Random pods on random clusters, decided by a real kube-scheduler and by ksched.

A seed is a cluster with its pods; the same seed makes the same. ``make parity SEEDS=1000-1099``
plays others than those of every run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ksched.testing.control_plane import ControlPlane
from ksched.testing.parity.arena import Arena
from ksched.testing.parity.scenario import Report, Scenario
from ksched.testing.seeds import asked_seeds

pytestmark = [pytest.mark.real, pytest.mark.real_time]

RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"


def summary(reports: list[Report]) -> str:
    bound = sum(report.bound for report in reports)
    decisions = sum(report.decisions for report in reports)
    differing = sum(len(report.disagreements) for report in reports)
    seeds = f"seeds {reports[0].seed} to {reports[-1].seed}"
    return f"{seeds}: {decisions} decisions, {bound} bound, {differing} differ"


# One test for all seeds: starting two schedulers takes as long as twenty decisions.
@pytest.mark.timeout(0)
async def test_decides_as_kube_scheduler_does(control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "-f", str(RBAC))
    reports = []
    async with Arena.running(control_plane) as arena:
        for seed in asked_seeds(15):
            reports.append(await Scenario.play(arena, seed))
            print(summary(reports[-1:]))  # noqa: T201  a long run should show where it is
    print(summary(reports))  # noqa: T201

    found = [text for report in reports for text in report.disagreements]
    assert not found, "\n\n".join([summary(reports), *found])
