"""plugins/noderesources/fit.go: isSchedulableAfterPodEvent, isSchedulableAfterNodeChange.

Covers ``ksched.framework.memoizing`` too.
"""

from __future__ import annotations

import pytest

from ksched.configuration.plugin_args import NodeResourcesFitArgs
from ksched.framework import Action, ClusterEvent, QueueingHint, Resource
from ksched.framework.plugins.node_resources.fit import NodeResourcesFit
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import run_hint

QUEUE, SKIP = QueueingHint.QUEUE, QueueingHint.SKIP

POD_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
SCALE_DOWN = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_DOWN)
OWN_SCALE_DOWN = ClusterEvent(Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_SCALE_DOWN)
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
ALLOCATABLE = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE)
LABELS = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)

GPU = "example.com/gpu"
WAITING = make_pod("waiting").req(cpu="2", memory="1Gi")
BIG = make_pod("big").req(cpu="4", memory="4Gi").node("n")


@pytest.mark.parametrize(
    ("deleted", "hint"),
    [
        pytest.param(BIG, QUEUE, id="was on a node"),
        pytest.param(make_pod("idle").node("n"), QUEUE, id="asked for nothing, but was a pod"),
        pytest.param(make_pod("next").nominated("n"), QUEUE, id="had a node in view"),
        pytest.param(make_pod("pending").req(cpu="4"), SKIP, id="was on no node"),
    ],
)
def test_a_deleted_pod_wakes_the_pod_if_it_held_room(
    deleted: PodBuilder, hint: QueueingHint
) -> None:
    assert run_hint(NodeResourcesFit(), POD_DELETE, WAITING.obj(), deleted.obj(), None) is hint


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param(BIG, BIG.req(cpu="3"), QUEUE, id="gives cpu back"),
        pytest.param(BIG, BIG.req(cpu="3", memory="5Gi"), QUEUE, id="gives cpu, takes memory"),
        pytest.param(
            BIG.req({GPU: 2}), BIG.req({GPU: 1}), SKIP, id="gives back what nobody waits for"
        ),
    ],
)
def test_a_pod_that_shrinks_wakes_the_pod_if_it_helps(
    old: PodBuilder, new: PodBuilder, hint: QueueingHint
) -> None:
    answer = run_hint(NodeResourcesFit(), SCALE_DOWN, WAITING.obj(), old.obj(), new.obj())

    assert answer is hint


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        pytest.param(
            make_pod("other").req(cpu="4"), make_pod("other").req(cpu="3"), SKIP, id="another"
        ),
        pytest.param(WAITING.req(cpu="3"), WAITING, QUEUE, id="the waiting pod itself"),
    ],
)
def test_a_waiting_pod_that_shrinks_wakes_itself(
    old: PodBuilder, new: PodBuilder, hint: QueueingHint
) -> None:
    answer = run_hint(NodeResourcesFit(), OWN_SCALE_DOWN, WAITING.obj(), old.obj(), new.obj())

    assert answer is hint


def test_a_shrinking_pod_frees_room_only_when_the_kubelet_has_done_it() -> None:
    """The larger of what is wanted and what is in use counts (UseStatusResources)."""
    in_use = {"status": {"containerStatuses": [{"name": "c0", "resources": {"requests": {}}}]}}

    def using(cpu: str) -> PodBuilder:
        status = in_use["status"]["containerStatuses"][0] | {
            "resources": {"requests": {"cpu": cpu, "memory": "4Gi"}}
        }
        return BIG.req(cpu="1").merge({"status": {"containerStatuses": [status]}})

    plugin, waiting = NodeResourcesFit(), WAITING.obj()

    assert run_hint(plugin, SCALE_DOWN, waiting, BIG.obj(), using("4").obj()) is SKIP
    assert run_hint(plugin, SCALE_DOWN, waiting, using("4").obj(), using("1").obj()) is QUEUE


SMALL, LARGE = make_node("n").capacity(cpu="1"), make_node("n").capacity(cpu="8")


@pytest.mark.parametrize(
    ("event", "old", "new", "hint"),
    [
        pytest.param(NODE_ADD, None, LARGE, QUEUE, id="a node that is large enough"),
        pytest.param(NODE_ADD, None, SMALL, SKIP, id="a node that is too small"),
        pytest.param(NODE_ADD, None, LARGE.capacity(pods="0"), SKIP, id="a node without places"),
        pytest.param(ALLOCATABLE, SMALL, LARGE, QUEUE, id="a node that grew"),
        pytest.param(ALLOCATABLE, SMALL, SMALL.capacity(memory="64Gi"), SKIP, id="still too small"),
        pytest.param(
            ALLOCATABLE, LARGE, LARGE.capacity(cpu="6"), SKIP, id="a node that shrank, but fits"
        ),
        pytest.param(
            ALLOCATABLE, LARGE, LARGE.capacity({GPU: 4}), SKIP, id="grew in what nobody waits for"
        ),
        pytest.param(ALLOCATABLE, LARGE, LARGE.capacity(pods="111"), QUEUE, id="more places"),
        pytest.param(LABELS, SMALL, LARGE, SKIP, id="labels do not matter"),
    ],
)
def test_a_node_wakes_the_pod_if_it_would_fit_there_when_empty(
    event: ClusterEvent, old: NodeBuilder | None, new: NodeBuilder, hint: QueueingHint
) -> None:
    before = old.obj() if old else None

    assert run_hint(NodeResourcesFit(), event, WAITING.obj(), before, new.obj()) is hint


def test_ignored_resources_do_not_keep_a_pod_waiting() -> None:
    args = NodeResourcesFitArgs(ignored_resources=(GPU,))
    waiting = WAITING.req({GPU: 1}).obj()

    assert run_hint(NodeResourcesFit(args), NODE_ADD, waiting, None, LARGE.obj()) is QUEUE
    assert run_hint(NodeResourcesFit(), NODE_ADD, waiting, None, LARGE.obj()) is SKIP
