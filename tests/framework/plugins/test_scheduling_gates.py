"""plugins/schedulinggates/scheduling_gates.go."""

from __future__ import annotations

import pytest

from ksched.framework import Action, ClusterEvent, QueueingHint, Resource, Status, unresolvable
from ksched.framework.plugins.scheduling_gates import SchedulingGates
from ksched.framework.status import SUCCESS
from ksched.testing.builders import PodBuilder, make_pod
from ksched.testing.plugin_runner import PluginBench, run_hint

GATES_GONE = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)


@pytest.mark.parametrize(
    ("pod", "status"),
    [
        pytest.param(make_pod(), SUCCESS, id="no gates"),
        pytest.param(
            make_pod().gate("a"), unresolvable("waiting for scheduling gates: [a]"), id="one gate"
        ),
        pytest.param(
            make_pod().gate("a.b/c").gate("d"),
            unresolvable("waiting for scheduling gates: [a.b/c d]"),
            id="several gates are listed in order",
        ),
    ],
)
def test_gates_keep_a_pod_out_of_the_queue(pod: PodBuilder, status: Status) -> None:
    info = PluginBench(nodes=[]).pod_info(pod.obj())

    assert SchedulingGates().pre_enqueue(info) == status


@pytest.mark.parametrize(
    ("updated", "hint"),
    [
        pytest.param("web", QueueingHint.QUEUE, id="its own gates"),
        pytest.param("other", QueueingHint.SKIP, id="somebody else's gates"),
    ],
)
def test_a_pod_returns_when_its_own_gates_are_gone(updated: str, hint: QueueingHint) -> None:
    gated = make_pod("web").gate("a").obj()
    old, new = make_pod(updated).gate("a").obj(), make_pod(updated).obj()

    assert run_hint(SchedulingGates(), GATES_GONE, gated, old, new) is hint
