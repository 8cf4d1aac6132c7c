"""Totals by which a node is chosen: the same as the plugins' scores added up, on every path.

``Decider.decide`` compares them; here are the ways on which they come about.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ksched.configuration.loading import load_config
from ksched.framework import SUCCESS, CycleState, NodeInfo, PodInfo, Status, unschedulable
from ksched.testing import make_node, make_pod
from ksched.testing.builders import PodBuilder
from lab.decider import Decider

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
percentageOfNodesToScore: {percentage}
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      enabled: [{plugins}]
"""
WEB = {"app": "web"}
NODES = 150
SOFT = make_pod("soft").label(WEB).spread("zone", WEB, when_unsatisfiable="ScheduleAnyway")
ALIKE = make_pod("alike").label(WEB).spread("region", WEB, when_unsatisfiable="ScheduleAnyway")


class Even:
    """Rejects every second node, and is asked every time."""

    name: ClassVar[str] = "Even"

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        return SUCCESS if int(node.name[1:]) % 2 == 0 else unschedulable("odd")


def _decider(percentage: int, *plugins: Any) -> Decider:
    enabled = ", ".join(f"{{name: {plugin.name}}}" for plugin in plugins)
    config = load_config(CONFIG.format(percentage=percentage, plugins=enabled))
    registry = {plugin.name: lambda args, handle, plugin=plugin: plugin for plugin in plugins}
    decider = Decider(config, registry=registry)
    decider.set_cluster(
        make_node(f"n{n}").label(zone=f"z{n % 3}", region="r").capacity(cpu=str(4 + n % 5)).obj()
        for n in range(NODES)
    )
    for n in range(0, NODES, 4):
        running = make_pod(f"p{n}").label(WEB).req(cpu="1").node(f"n{n}").obj()
        decider.cache.add_pod(decider.cache.pod_info(running))
    return decider


@pytest.mark.parametrize(
    ("percentage", "plugins", "pod", "feasible"),
    [
        pytest.param(0, (), make_pod("plain"), NODES, id="all kept"),
        pytest.param(0, (), SOFT, NODES, id="all kept, and rated anew"),
        pytest.param(0, (), SOFT.node_selector(zone="z1"), 50, id="some kept, and rated anew"),
        pytest.param(0, (), ALIKE, NODES, id="all kept, and rated alike"),
        pytest.param(0, (), ALIKE.node_selector(zone="z1"), 50, id="some kept, and rated alike"),
        pytest.param(70, (), SOFT, 105, id="a share of the nodes"),
        pytest.param(70, (), ALIKE, 105, id="a share of the nodes, rated alike"),
        pytest.param(0, (Even(),), SOFT, 75, id="filtered anew"),
    ],
)
async def test_totals_are_the_sum_of_the_scores(
    percentage: int, plugins: tuple[Any, ...], pod: PodBuilder, feasible: int
) -> None:
    decider = _decider(percentage, *plugins)
    for number in range(3):
        verdict = await decider.decide(pod.obj())
        assert len(verdict.feasible) == feasible
        assert len(set(verdict.totals.values())) > 1, "scores that differ"
        busy = make_pod(f"busy{number}").label(WEB).req(cpu="2").node(f"n{number}")
        decider.cache.add_pod(decider.cache.pod_info(busy.obj()))
