"""What a decision hangs on, in cases that everybody can judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ksched.configuration.model import SchedulerConfiguration
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from lab.decider import Decider
from lab.parity.influences import (
    FIELDS,
    PLUGINS,
    Influences,
    of_others,
    profiles_to_compare,
)

TWO = (make_node("n1").capacity(cpu="4"), make_node("n2").capacity(cpu="4"))
SPREAD = {"topologyKey": "disk", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}
WEB = {"labelSelector": {"matchLabels": {"app": "web"}}}


def spread(**fields: Any) -> PodBuilder:
    constraint = {**SPREAD, **WEB, **fields}
    pod = make_pod("new").label(app="web", rev="2")
    return pod.merge({"spec": {"topologySpreadConstraints": [constraint]}})


def disks(*values: str) -> list[NodeBuilder]:
    return [make_node(f"n{n}").label(disk=value) for n, value in enumerate(values)]


def web(node: str, rev: str = "1") -> PodBuilder:
    return make_pod(f"on-{node}").label(app="web", rev=rev).node(node)


ALIKE = pytest.param((*disks("a", "b"),), (), make_pod("new"), set(), id="nodes that are alike")
CASES = [
    ALIKE,
    pytest.param(
        (TWO[0], TWO[1].unschedulable()),
        (),
        make_pod("new"),
        {"NodeUnschedulable"},
        id="a cordoned node",
    ),
    pytest.param(
        (TWO[0], make_node("n2").capacity(cpu="1")),
        (),
        make_pod("new").req(cpu="2"),
        {"NodeResourcesFit"},
        id="no room on one",
    ),
    pytest.param(
        (TWO[0], TWO[1].taint("team", "x")),
        (),
        make_pod("new"),
        {"TaintToleration"},
        id="a taint",
    ),
    pytest.param(
        (TWO[0], TWO[1].taint("team", "x", "PreferNoSchedule")),
        (),
        make_pod("new"),
        {"TaintToleration", "TaintToleration PreferNoSchedule"},
        id="a taint that only scores",
    ),
    pytest.param(
        disks("ssd", "hdd"),
        (),
        make_pod("new").node_selector(disk="ssd"),
        {"NodeAffinity", "NodeAffinity nodeSelector"},
        id="a node selector",
    ),
    pytest.param(
        disks("ssd", "ssd"),
        (),
        make_pod("new").node_selector(disk="ssd"),
        set(),
        id="a node selector of all nodes",
    ),
    pytest.param(
        disks("a", "b"),
        (),
        spread(minDomains=2, matchLabelKeys=["rev"], nodeTaintsPolicy="Honor"),
        set(),
        id="nothing there to spread from",
    ),
    pytest.param(
        disks("a", "b"),
        (web("n0"), web("n1")),
        spread(minDomains=3),
        {"PodTopologySpread", "PodTopologySpread DoNotSchedule", "PodTopologySpread minDomains"},
        id="too few domains",
    ),
]


@pytest.mark.parametrize(("nodes", "running", "pod", "wanted"), CASES)
async def test_what_a_decision_hangs_on(
    nodes: Sequence[NodeBuilder], running: Sequence[PodBuilder], pod: PodBuilder, wanted: set[str]
) -> None:
    profiles = profiles_to_compare(PLUGINS)
    configuration = SchedulerConfiguration.model_validate({"profiles": profiles})
    decider = Decider(configuration)
    decider.set_cluster([one.obj() for one in nodes], [one.obj() for one in running])
    influences = Influences(decider.cycle, decider.cache, decider.profiles, PLUGINS)

    found = await influences.on(pod.to_dict(), FIELDS)

    # How full a node is nearly always matters a little.
    scores = {"NodeResourcesFit", "NodeResourcesBalancedAllocation"} - wanted
    assert found - scores == wanted


def test_a_pod_without_constraints_meets_those_of_others() -> None:
    pod = make_pod("new").to_dict()
    both = {"PodTopologySpread", "InterPodAffinity", "NodePorts"}

    assert of_others(pod, both) == {
        "PodTopologySpread by default",
        "InterPodAffinity of running pods",
    }
    assert of_others(pod, {"NodePorts"}) == set()
    assert of_others(spread().to_dict(), {"PodTopologySpread"}) == set()
