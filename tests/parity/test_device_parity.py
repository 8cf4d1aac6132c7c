"""Random pods with resource claims: verdict, message, scores and devices as kube-scheduler's.

``make parity SEEDS=0-99`` plays more than every run does.
"""

from __future__ import annotations

import pytest

from lab.control_plane import ControlPlane
from lab.parity.devices import DeviceScenario
from lab.parity.tally import Tally
from lab.random_devices import FEATURES
from lab.seeds import asked_seeds

pytestmark = [pytest.mark.real, pytest.mark.real_time]

SEEDS = 6


@pytest.mark.timeout(120 + 30 * len(asked_seeds(SEEDS)))
async def test_gives_the_devices_that_kube_scheduler_gives(
    control_plane: ControlPlane, tally: Tally
) -> None:
    found: list[str] = []
    own = Tally()
    own.expect(FEATURES)
    with DeviceScenario.scheduler(control_plane) as log:
        for seed in asked_seeds(SEEDS):
            differences = await DeviceScenario(control_plane, log, seed).play(own)
            found += differences
            print(f"seed {seed}", own.decisions, "decisions", *differences, sep="\n")  # noqa: T201
    print(*own.table(), sep="\n")  # noqa: T201

    assert not found, "\n".join(found)
    assert own.rarest(FEATURES) > 0
    del tally
