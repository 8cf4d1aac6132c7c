"""Random pods with resource claims: verdict, message, scores and devices as kube-scheduler's.

``make parity SEEDS=0-99`` plays more than every run does.
"""

from __future__ import annotations

import pytest

from lab.assets import KUBE_CONTROLLER_MANAGER, locate
from lab.control_plane import ControlPlane
from lab.parity.devices import DeviceScenario
from lab.parity.tally import Tally
from lab.random_devices import ALLOCATION, EXTENDED, FEATURES, FILTER_TIMEOUT, TEMPLATE, Json
from lab.seeds import asked_seeds

pytestmark = [pytest.mark.real, pytest.mark.real_time]

SEEDS = 6


SCORED_SEEDS = 3
SCORED = [{"name": "cpu", "weight": 1}, {"name": EXTENDED, "weight": 3}]
# Not NodeResourcesBalancedAllocation: kube-scheduler v1.36.4 ends with a nil pointer there.
SCORED_BY_DEVICES: list[Json] = [
    {
        "name": "NodeResourcesFit",
        "args": {"scoringStrategy": {"type": "MostAllocated", "resources": SCORED}},
    },
]

TIMEOUT_SEEDS = 1
TEMPLATE_SEEDS = 1
SHORT_TIMEOUT: list[Json] = [{"name": "DynamicResources", "args": {"filterTimeout": "300ms"}}]
"""In kube-scheduler ten seconds."""


async def play(
    plane: ControlPlane,
    seeds: list[int],
    tally: Tally,
    plugin_config: list[Json],
    *,
    extended: int,
    long: int = 0,
    templates: int = 0,
) -> None:
    found: list[str] = []
    with DeviceScenario.scheduler(plane, plugin_config) as log:
        for seed in seeds:
            scenario = DeviceScenario(
                plane,
                log,
                seed,
                plugin_config,
                extended_percent=extended,
                long_percent=long,
                template_percent=templates,
            )
            differences = await scenario.play(tally)
            found += differences
            counts = f"{tally.decisions} decisions, {scenario.pods_explained} of them explained"
            print(f"seed {seed}: {counts}", *differences, sep="\n")  # noqa: T201
    assert not found, "\n".join(found)


@pytest.mark.timeout(120 + 30 * len(asked_seeds(SEEDS)))
async def test_gives_the_devices_that_kube_scheduler_gives(
    control_plane: ControlPlane, tally: Tally
) -> None:
    tally.expect(FEATURES)
    await play(control_plane, asked_seeds(SEEDS), tally, [], extended=12)
    are_many = tally.count(ALLOCATION) >= 1000
    assert tally.rarest(FEATURES) >= (50 if are_many else 1)


@pytest.mark.timeout(120 + 30 * len(asked_seeds(SCORED_SEEDS)))
async def test_scores_by_devices_as_kube_scheduler_does(
    control_plane: ControlPlane, tally: Tally
) -> None:
    seeds = [one + 1000 for one in asked_seeds(SCORED_SEEDS)]
    await play(control_plane, seeds, tally, SCORED_BY_DEVICES, extended=80)


@pytest.mark.timeout(120 + 30 * len(asked_seeds(TIMEOUT_SEEDS)))
async def test_gives_up_searches_as_kube_scheduler_does(
    control_plane: ControlPlane, tally: Tally
) -> None:
    seeds = [one + 2000 for one in asked_seeds(TIMEOUT_SEEDS)]
    await play(control_plane, seeds, tally, SHORT_TIMEOUT, extended=12, long=60)
    assert tally.rarest([FILTER_TIMEOUT]) > 0


@pytest.mark.skipif(
    locate(KUBE_CONTROLLER_MANAGER) is None, reason="kube-controller-manager is not built"
)
@pytest.mark.timeout(120 + 30 * len(asked_seeds(TEMPLATE_SEEDS)))
async def test_gives_the_devices_beside_kube_controller_manager(
    control_plane: ControlPlane, tally: Tally
) -> None:
    """Claims are made from templates, released and deleted by the real controller."""
    seeds = [one + 3000 for one in asked_seeds(TEMPLATE_SEEDS)]
    with control_plane.kube_controller_manager("--controllers=resourceclaim-controller"):
        await play(control_plane, seeds, tally, [], extended=12, templates=60)
    assert tally.count(TEMPLATE) > 0
