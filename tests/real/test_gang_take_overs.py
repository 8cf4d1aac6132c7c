"""kill -9 of the leader while it binds gangs; ``python -m lab.gang_kills`` plays more rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.assets import Assets
from lab.audit_log import AuditLog
from lab.control_plane import ControlPlane
from lab.gang_kills import FLAGS, play, set_up

pytestmark = [pytest.mark.real, pytest.mark.real_time, pytest.mark.timeout(150)]


async def test_14_gangs_are_whole_and_bound_once_after_kills_of_the_leader(
    assets: Assets, tmp_path: Path
) -> None:
    audit = AuditLog(tmp_path / "audit", "ksched")
    with ControlPlane.running(tmp_path / "plane", assets, [*FLAGS, *audit.flags]) as plane:
        set_up(plane)
        killed = await play(plane, audit, rounds=2, seed=1)
    assert (killed.rounds, killed.gangs) == (2, 12)
