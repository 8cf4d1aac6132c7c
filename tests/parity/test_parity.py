"""Random pods on random clusters, decided by a real kube-scheduler and by ksched.

A seed is a cluster with its pods; the same seed makes the same. ``make parity SEEDS=1000-1099``
plays others than those of every run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.control_plane import ControlPlane
from lab.parity.arena import Arena
from lab.parity.influences import EVERYTHING
from lab.parity.scenario import Report, Scenario
from lab.parity.tally import Tally
from lab.seeds import asked_seeds

pytestmark = [pytest.mark.real, pytest.mark.real_time]

SEEDS = 25
REASONS = {
    "Insufficient cpu",
    "Insufficient memory",
    "Insufficient ephemeral-storage",
    "Insufficient example.com/gpu",
    "Insufficient hugepages-2Mi",
    "Too many pods",
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't have free ports for the requested pod ports",
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod topology spread constraints (missing required label)",
    "node(s) didn't match Pod's required features",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
    "not eligible due to preemptionPolicy=Never",
    "No preemption victims found for incoming pod",
    "Preemption is not helpful for scheduling",
}
RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"


def summary(reports: list[Report]) -> str:
    bound = sum(report.bound for report in reports)
    decisions = sum(report.decisions for report in reports)
    differing = sum(len(report.disagreements) for report in reports)
    seeds = f"seeds {reports[0].seed} to {reports[-1].seed}"
    return f"{seeds}: {decisions} decisions, {bound} bound, {differing} differ"


# One test for all seeds: starting two schedulers takes as long as twenty decisions.
@pytest.mark.timeout(60 + 60 * len(asked_seeds(SEEDS)))
async def test_decides_as_kube_scheduler_does(control_plane: ControlPlane, tally: Tally) -> None:
    control_plane.kubectl("apply", "-f", str(RBAC))
    tally.expect(EVERYTHING)
    reports = []
    async with Arena.running(control_plane) as arena:
        for seed in asked_seeds(SEEDS):
            reports.append(await Scenario.play(arena, seed, tally))
            # A long run should show where it is, and lose nothing when it is cut short.
            print(summary(reports[-1:]), *reports[-1].disagreements, sep="\n")  # noqa: T201
    print(summary(reports))  # noqa: T201

    found = [text for report in reports for text in report.disagreements]
    assert not found, "\n\n".join([summary(reports), *found])
    if len(reports) >= SEEDS:
        # Agreement says something only about what came up.
        messages = " ".join(message for report in reports for message in report.messages)
        assert {reason for reason in REASONS if reason not in messages} == set()
        assert tally.rarest(EVERYTHING) > 0
