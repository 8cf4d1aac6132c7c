"""plugins/nodename/node_name.go."""

from __future__ import annotations

import pytest

from ksched.framework import (
    SKIP,
    SUCCESS,
    Action,
    ClusterEvent,
    CycleState,
    QueueingHint,
    Resource,
    Status,
    unresolvable,
)
from ksched.framework.plugins.node_name import NodeName
from ksched.testing.builders import PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench, run_filter, run_hint

OTHER = unresolvable("node(s) didn't match the requested node name")
NODES = [make_node("a").obj(), make_node("b").obj()]


@pytest.mark.parametrize(
    ("pod", "a", "b"),
    [
        pytest.param(make_pod(), SUCCESS, SUCCESS, id="names no node"),
        pytest.param(make_pod().node("b"), OTHER, SUCCESS, id="names a node"),
        pytest.param(make_pod().node("gone"), OTHER, OTHER, id="names a node that is not there"),
    ],
)
def test_a_pod_that_names_its_node_goes_nowhere_else(pod: PodBuilder, a: Status, b: Status) -> None:
    assert run_filter(NodeName(), pod.obj(), NODES) == {"a": a, "b": b}


def test_pods_of_one_template_may_name_different_nodes() -> None:
    bench = PluginBench(NODES)
    one, other = make_pod("p").node("a").obj(), make_pod("p").node("b").obj()

    assert bench.pod_info(one).template is bench.pod_info(other).template
    assert bench.filter(NodeName(), one) == {"a": SUCCESS, "b": OTHER}
    assert bench.filter(NodeName(), other) == {"a": OTHER, "b": SUCCESS}


def test_a_pod_without_a_node_name_is_skipped() -> None:
    bench = PluginBench(NODES)
    pod = bench.pod_info(make_pod().obj())

    assert NodeName().pre_filter(CycleState(), pod, bench.snapshot) is SKIP


def test_every_new_node_wakes_the_pod() -> None:
    event = ClusterEvent(Resource.NODE, Action.ADD)
    pod = make_pod().node("b").obj()

    assert run_hint(NodeName(), event, pod, None, make_node("c").obj()) is QueueingHint.QUEUE
