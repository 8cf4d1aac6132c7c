"""plugins/podtopologyspread/scoring.go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from ksched.api.objects import (
    ObjectMeta,
    Service,
    ServiceSpec,
    TopologySpreadConstraint,
)
from ksched.cache.listers import Listers
from ksched.configuration.plugin_args import PodTopologySpreadArgs
from ksched.framework.plugins.pod_topology_spread.plugin import PodTopologySpread
from ksched.framework.plugins.pod_topology_spread.scoring import rounded
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench, PluginRefused

ZONE = "topology.kubernetes.io/zone"
WEB = {"app": "web"}


def _node(name: str, **labels: str) -> NodeBuilder:
    return make_node(name).label(labels)


def _zoned(name: str, zone: str) -> NodeBuilder:
    return make_node(name).label({ZONE: zone})


def _pods(**by_node: int) -> list[PodBuilder]:
    return [
        make_pod(f"{node}-{number}").label(WEB).node(node)
        for node, count in by_node.items()
        for number in range(count)
    ]


def _with_service(args: PodTopologySpreadArgs | None = None) -> PodTopologySpread:
    listers = Listers()
    plugin = PodTopologySpread(args, listers)
    meta = ObjectMeta(name="web", namespace="default")
    listers.require(Service).put(Service(metadata=meta, spec=ServiceSpec(selector=WEB)))
    return plugin


def _scores(
    pod: PodBuilder,
    nodes: Iterable[NodeBuilder],
    running: Iterable[PodBuilder],
    feasible: list[str] | None = None,
    plugin: PodTopologySpread | None = None,
) -> dict[str, int]:
    bench = PluginBench([node.obj() for node in nodes], [one.obj() for one in running])
    return bench.score(plugin or PodTopologySpread(None, Listers()), pod.obj(), feasible)


def _soft(key: str, **options: Any) -> PodBuilder:
    pod = make_pod("new").label(WEB)
    return pod.spread(key, WEB, when_unsatisfiable="ScheduleAnyway", **options)


THREE = [_node("a", zone="a"), _node("b", zone="b"), _node("c", zone="c")]


def test_the_emptier_zone_is_better() -> None:
    """Raw scores are round(pods x ln 5): 5, 2, 0."""
    assert _scores(_soft("zone"), THREE, _pods(a=3, b=1)) == {"a": 0, "b": 60, "c": 100}


def test_a_larger_skew_evens_out_the_scores() -> None:
    """Raw: 5 + 4, 2 + 4, 0 + 4."""
    scores = _scores(_soft("zone", max_skew=5), THREE, _pods(a=3, b=1))

    assert scores == {"a": 44, "b": 77, "c": 100}


def test_without_any_pods_all_nodes_are_best() -> None:
    assert _scores(_soft("zone"), THREE, []) == {"a": 100, "b": 100, "c": 100}


def test_pods_on_infeasible_nodes_count_for_the_zone() -> None:
    nodes = [*THREE, _node("a2", zone="a")]
    scores = _scores(_soft("zone"), nodes, _pods(a2=3), feasible=["a", "b"])

    assert scores == {"a": 0, "b": 100}


def test_only_zones_of_feasible_nodes_weigh() -> None:
    """Two zones instead of three: ln 4 instead of ln 5, so that 3, 1 pods are 4, 1."""
    scores = _scores(_soft("zone"), THREE, _pods(a=3, b=1), feasible=["a", "b"])

    assert scores == {"a": 25, "b": 100}


def test_nodes_without_the_label_get_nothing() -> None:
    nodes = [*THREE, _node("bare")]

    assert _scores(_soft("zone"), nodes, _pods(a=1))["bare"] == 0
    assert _scores(_soft("zone"), [_node("bare"), _node("too")], []) == {"bare": 0, "too": 0}


def test_host_names_count_the_pods_of_each_node() -> None:
    """Two nodes: ln 4; 2, 1 pods are 3, 1. A node affinity does not matter here, as upstream."""
    pod = _soft("kubernetes.io/hostname").node_selector(none="such")
    nodes = [_node("a"), _node("b")]

    assert _scores(pod, nodes, _pods(a=2, b=1)) == {"a": 33, "b": 100}


@pytest.mark.parametrize(
    ("policy", "scores"),
    [
        pytest.param(None, {"a": 100, "b": 100}, id="honoured by default"),
        pytest.param("Ignore", {"a": 0, "b": 100}, id="ignored"),
    ],
)
def test_nodes_that_the_pod_excludes_do_not_count(
    policy: str | None, scores: dict[str, int]
) -> None:
    """The pods of zone a are on a node without a disk."""
    pod = _soft("zone", node_affinity_policy=policy).node_selector(disk="ssd")
    nodes = [_node("a", zone="a", disk="ssd"), _node("b", zone="b", disk="ssd")]
    nodes.append(_node("a2", zone="a"))

    assert _scores(pod, nodes, _pods(a2=2), feasible=["a", "b"]) == scores


def test_system_defaults_spread_the_pods_of_a_service() -> None:
    """Raw: round(hosts x ln 5 + 2 + zones x ln 5 + 4) = 12, 9, 6."""
    nodes = [_zoned("a", "a"), _zoned("b", "b"), _zoned("c", "c")]
    new = make_pod("new").label(WEB)
    scores = _scores(new, nodes, _pods(a=2, b=1), plugin=_with_service())

    assert scores == {"a": 50, "b": 75, "c": 100}


def test_system_defaults_rate_nodes_without_a_zone_by_their_host_name() -> None:
    nodes = [_node("a"), _node("b")]
    new = make_pod("new").label(WEB)
    scores = _scores(new, nodes, _pods(a=1), plugin=_with_service())

    assert scores["a"] < scores["b"] == 100


def test_a_missing_zone_and_an_empty_one_are_the_same() -> None:
    """Upstream reads an absent label as an empty one: the pods without a zone count for b."""
    nodes = [_node("a"), _zoned("b", ""), _zoned("c", "c")]
    new = make_pod("new").label(WEB)
    scores = _scores(new, nodes, _pods(a=3), plugin=_with_service())

    assert scores["b"] < scores["c"]


def test_listed_defaults_demand_all_labels() -> None:
    soft = TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable="ScheduleAnyway"
    )
    args = PodTopologySpreadArgs(defaulting_type="List", default_constraints=(soft,))
    nodes = [_node("a", zone="a"), _node("bare")]
    new = make_pod("new").label(WEB)

    assert _scores(new, nodes, [], plugin=_with_service(args)) == {"a": 100, "bare": 0}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(make_pod(), id="no constraints, no services"),
        pytest.param(make_pod().label(WEB).spread("zone", WEB), id="hard constraints only"),
    ],
)
def test_pods_without_soft_constraints_are_skipped(pod: PodBuilder) -> None:
    assert _scores(pod, THREE, _pods(a=1)) == {}


def test_own_constraints_replace_the_defaults() -> None:
    pod = make_pod().label(WEB).spread("zone", WEB)

    assert _scores(pod, THREE, _pods(a=1), plugin=_with_service()) == {}


def test_a_selector_that_cannot_be_parsed_is_an_error() -> None:
    pod = make_pod().spread(
        "zone", None, [("app", "Near", ["web"])], when_unsatisfiable="ScheduleAnyway"
    )
    with pytest.raises(PluginRefused, match="obtaining pod's soft topology spread constraints"):
        _scores(pod, THREE, [])


def test_halves_are_rounded_up_and_no_more() -> None:
    just_below = 0.49999999999999994

    assert rounded(np.array([2.5, 3.5, just_below, 0.0])).tolist() == [3, 4, 0, 0]
