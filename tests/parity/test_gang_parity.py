"""Random gangs, decided by a real kube-scheduler with its gates for them on and by ksched.

``make parity-gangs SEEDS=1000-1024`` plays other seeds than those of every run: 200 gangs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.assets import Assets
from lab.control_plane import ControlPlane
from lab.parity.arena import Arena
from lab.parity.gangs import GangReport, GangScenario
from lab.seeds import asked_seeds

pytestmark = [pytest.mark.real, pytest.mark.real_time]

SEEDS = 4
GATES = ("GenericWorkload", "GangScheduling")
FLAGS = (
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    "--feature-gates=" + ",".join(f"{gate}=true" for gate in GATES),
    # No controller takes the finalizer away that it adds.
    "--disable-admission-plugins=PodGroupProtection",
)
CONFIG = Path(__file__).parents[2] / "config"


@pytest.fixture(scope="module")
def plane(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    folder = tmp_path_factory.mktemp("gang-parity")
    with ControlPlane.running(folder, assets, FLAGS) as running:
        for name in ("rbac.yaml", "rbac-gangs.yaml"):
            running.kubectl("apply", "-f", str(CONFIG / name))
        yield running


def summary(reports: list[GangReport]) -> str:
    gangs = sum(report.gangs for report in reports)
    placed = sum(report.placed for report in reports)
    differing = sum(len(report.disagreements) for report in reports)
    seeds = f"seeds {reports[0].seed} to {reports[-1].seed}"
    return f"{seeds}: {gangs} gangs, {placed} placed, {differing} differ"


@pytest.mark.timeout(60 + 60 * len(asked_seeds(SEEDS)))
async def test_gangs_of_equals_are_decided_as_kube_scheduler_does(plane: ControlPlane) -> None:
    reports = []
    async with Arena.running(plane, GATES) as arena:
        for seed in asked_seeds(SEEDS):
            reports.append(await GangScenario.play_gangs(arena, seed))
            print(summary(reports[-1:]), *reports[-1].disagreements, sep="\n")  # noqa: T201
    print(summary(reports))  # noqa: T201
    found = [text for report in reports for text in report.disagreements]
    assert not found, "\n\n".join([summary(reports), *found])
    if len(reports) >= SEEDS:
        assert sum(report.placed for report in reports) >= 2 * SEEDS
        assert sum(report.refused for report in reports) >= SEEDS
