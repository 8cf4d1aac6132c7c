"""Pods as large as a real API server admits, beside ordinary ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.assets import Assets
from lab.beside import KINDS, RBAC, compare, create_nodes
from lab.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

STALL_SECONDS = 2.0
"""On a busy machine; what a stall really is, ``python -m lab.beside`` shows on an idle one."""


def test_bulky_pods_neither_stop_the_scheduler_nor_the_pods_beside_them(tmp_path: Path) -> None:
    with ControlPlane.running(tmp_path, Assets.find()) as plane:
        plane.kubectl("apply", "-f", str(RBAC))
        create_nodes(plane, 1000)
        for kind in KINDS:
            _, elsewhere, beside = compare(plane, kind, 60, 20, 2, None)
            assert beside.longest_stall < STALL_SECONDS, kind
            assert beside.quantile(0.99) < 2 * elsewhere.quantile(0.99) + STALL_SECONDS, kind
