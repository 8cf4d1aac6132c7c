"""``ksched explain`` where kube-scheduler decides; at length: ``python -m lab.explained``."""

from __future__ import annotations

from itertools import count

import pytest
import uvloop

from lab.control_plane import ControlPlane
from lab.explained import RBAC, run

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def test_reasons_are_kube_schedulers_and_every_change_makes_it_place_the_pod(
    control_plane: ControlPlane,
) -> None:
    control_plane.kubectl("apply", "-f", str(RBAC))
    findings = uvloop.run(run(control_plane, 4, count(1000), per_seed=4))
    assert not findings.problems
    assert findings.counts["changes"] >= 4
