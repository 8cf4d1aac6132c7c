"""Which filters can be asked about amounts alone, and what they answer."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from ksched.cache.dry_run_table import DryRunTable, amounts_of
from ksched.configuration import load_config
from ksched.framework import (
    SUCCESS,
    CycleState,
    FilterDependsOn,
    Scope,
    Status,
    Verdicts,
    unschedulable,
)
from ksched.framework.runtime.dry_run_filters import ResourceFilters
from ksched.testing import NodeBuilder, PodBuilder, make_node, make_pod
from lab.decider import Decider

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: Own}]}}
"""


class Own:
    """A filter of any scope that has nothing against anybody."""

    name: ClassVar[str] = "Own"

    def __init__(self, scope: Scope) -> None:
        self.filter_depends_on = FilterDependsOn(scope)

    def filter_nodes(self, state: CycleState, pod: object, nodes: Any) -> Verdicts:
        return Verdicts.passing(len(nodes))


class Follower(Own):
    """One that keeps a state of its own in dry runs."""

    def pre_filter(self, state: CycleState, pod: object, snapshot: object) -> Status:
        return SUCCESS

    def add_pod(self, *args: object) -> Status:
        return SUCCESS


async def filters_of(
    pod: PodBuilder,
    nodes: list[NodeBuilder],
    pods: list[PodBuilder] | None = None,
    nominated: list[PodBuilder] | None = None,
    plugin: Own | None = None,
) -> tuple[ResourceFilters, DryRunTable]:
    if plugin is None:
        decider = Decider()
    else:
        decider = Decider(load_config(CONFIG), registry={"Own": lambda args, handle: plugin})
    decider.set_cluster([one.obj() for one in nodes], [one.obj() for one in pods or ()])
    decider.cache.update_snapshot()
    for one in nominated or ():
        decider.nominator.add(decider.cache.pod_info(one.obj()))
    pipeline = decider.profiles["default-scheduler"].pipeline
    info, state = decider.cache.pod_info(pod.obj()), CycleState()
    await pipeline.run_pre_filter(state, info)
    excerpt = DryRunTable(decider.cache.snapshot.table, np.arange(len(nodes)))
    expected = decider.nominator.expected_with(info)
    return pipeline.dry_run.resource_filters(state, info, excerpt, expected), excerpt


def statuses(filters: ResourceFilters) -> list[tuple[str, ...]]:
    return [filters.status(code).reasons if code else () for code in filters.judge().tolist()]


@pytest.mark.parametrize(
    ("pod", "plugin", "is_complete"),
    [
        pytest.param(make_pod(), None, True, id="a plain pod"),
        pytest.param(make_pod().node_selector(a="b").toleration("x"), None, True, id="node labels"),
        pytest.param(make_pod().host_port(80), None, False, id="host ports"),
        pytest.param(make_pod().pod_anti_affinity("zone", {"a": "b"}), None, False, id="affinity"),
        pytest.param(make_pod().spread("zone", {"a": "b"}), None, False, id="hard spreading"),
        pytest.param(make_pod(), Own(Scope.NODE), True, id="own filter by node"),
        pytest.param(make_pod(), Own(Scope.RESOURCES), True, id="own filter by amounts"),
        pytest.param(make_pod(), Own(Scope.ROW), False, id="own filter by pods"),
        pytest.param(make_pod(), Own(Scope.POD), False, id="own filter by anything"),
        pytest.param(make_pod(), Follower(Scope.NODE), False, id="own filter with a state"),
    ],
)
async def test_amounts_decide_for(pod: PodBuilder, plugin: Own | None, is_complete: bool) -> None:
    filters, _ = await filters_of(pod, [make_node("n1").label(a="b", zone="z")], plugin=plugin)

    assert filters.is_complete is is_complete
    assert statuses(filters) == [()]


async def test_changed_amounts_change_the_answer_and_nodes_do_not() -> None:
    nodes = [make_node("n1"), make_node("n2").taint("x"), make_node("n3")]
    pods = [make_pod(f"v{n}").req(cpu="4").node(f"n{n}") for n in (1, 2)]
    filters, excerpt = await filters_of(make_pod("p").req(cpu="1"), nodes, pods)
    taint = ("node(s) had untolerated taint(s)",)
    assert statuses(filters) == [("Insufficient cpu",), taint, ()]

    [info] = excerpt.infos[0].pods.values()
    for line, amount in amounts_of(info):
        excerpt.amounts[line] -= [amount, amount, 0]
    assert statuses(filters) == [(), taint, ()]


async def test_expected_pods_take_their_room_first() -> None:
    nodes = [make_node("n1"), make_node("n2"), make_node("n3").capacity(pods="1")]
    coming = [
        make_pod("a").req(cpu="4").priority(5).nominated("n1"),
        make_pod("b").req(cpu="4").priority(4).nominated("n2"),
        make_pod("c").priority(5).nominated("n3"),
    ]
    pod = make_pod("p").req(cpu="1").priority(5)
    filters, excerpt = await filters_of(pod, nodes, nominated=coming)
    before = excerpt.amounts.copy()

    assert statuses(filters) == [("Insufficient cpu",), (), ("Too many pods",)]
    assert (excerpt.amounts == before).all(), "they were only thought of"


async def test_the_first_filter_owns_the_reason() -> None:
    class Late(Own):
        def filter_nodes(self, state: CycleState, pod: object, nodes: Any) -> Verdicts:
            return Verdicts.rejecting(np.ones(len(nodes), np.bool_), unschedulable("never"))

    nodes = [make_node("n1"), make_node("n2")]
    pods = [make_pod("v").req(cpu="4").node("n1")]
    pod = make_pod("p").req(cpu="1")
    filters, _ = await filters_of(pod, nodes, pods, plugin=Late(Scope.NODE))

    assert statuses(filters) == [("Insufficient cpu",), ("never",)]
