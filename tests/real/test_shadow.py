"""``ksched shadow`` beside a real kube-scheduler; ``python -m lab.shadow`` does this at length."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

import pytest
import uvloop

from lab.control_plane import ControlPlane
from lab.shadow import RBAC, compare

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    control_plane.kubectl("apply", "-f", str(RBAC))
    yield control_plane
    control_plane.request("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=0")
    control_plane.request("DELETE", "/api/v1/nodes")


def options(pods: int, live: str = "") -> Namespace:
    # With a backlog beside other load the lag can be longer than what is tried, and looks like
    # another configuration. `python -m lab.shadow` has a backlog; the machine must be quiet.
    pace = {"per_second": 20.0, "patience": 120.0}
    return Namespace(nodes=60, pods=pods, live=live, workload="mixed", seed=1, **pace)


def test_every_decision_of_kube_scheduler_is_explained(plane: ControlPlane) -> None:
    summary = uvloop.run(compare(plane, options(150)))
    assert summary.decisions >= 140
    assert not summary.outcomes.get("different"), summary.differences
    assert not summary.not_judged
    assert summary.agreeing >= 0.5 * summary.decisions


def test_a_planted_configuration_is_named_within_100_pods(plane: ControlPlane) -> None:
    summary = uvloop.run(compare(plane, options(80, "MostAllocated")))
    (finding,) = summary.findings
    assert finding.configurations == ["NodeResourcesFit with scoringStrategy MostAllocated"]
    assert finding.noticed_after <= 80
