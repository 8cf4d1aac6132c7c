"""plugins/selectorspread/selector_spread.go, of releases that had it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ksched.api.objects import ObjectMeta, Service, ServiceSpec
from ksched.cache.listers import Listers
from ksched.framework.plugins.selector_spread import SelectorSpread
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench

WEB = {"app": "web"}
NEW = make_pod("new").label(WEB)


def _scores(
    nodes: Iterable[NodeBuilder], running: Iterable[PodBuilder], pod: PodBuilder = NEW
) -> dict[str, int]:
    listers = Listers()
    plugin = SelectorSpread(None, listers)
    meta = ObjectMeta(name="web", namespace="default")
    listers.require(Service).put(Service(metadata=meta, spec=ServiceSpec(selector=WEB)))
    bench = PluginBench([node.obj() for node in nodes], [one.obj() for one in running])
    return bench.score(plugin, pod.obj())


def _pods(**by_node: int) -> list[PodBuilder]:
    return [
        make_pod(f"{node}-{number}").label(WEB).node(node)
        for node, count in by_node.items()
        for number in range(count)
    ]


BARE = [make_node("a"), make_node("b"), make_node("c")]
ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


def test_fewer_pods_of_the_service_are_better() -> None:
    assert _scores(BARE, _pods(a=4, b=1)) == {"a": 0, "b": 75, "c": 100}


def test_without_any_all_nodes_are_best() -> None:
    assert _scores(BARE, []) == {"a": 100, "b": 100, "c": 100}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(make_pod("x", "other").label(WEB).node("a"), id="other namespace"),
        pytest.param(make_pod("x").label(WEB).node("a").terminating(), id="being deleted"),
        pytest.param(make_pod("x").node("a"), id="not of the service"),
    ],
)
def test_other_pods_do_not_count(other: PodBuilder) -> None:
    assert _scores(BARE, [other, *_pods(b=1)]) == {"a": 100, "b": 0, "c": 100}


def test_zones_count_two_thirds() -> None:
    nodes = [
        make_node("a1").label({ZONE: "a"}),
        make_node("a2").label({OLD_ZONE: "a"}),
        make_node("b1").label({ZONE: "b"}),
        make_node("bare"),
    ]

    scores = _scores(nodes, _pods(a1=2, b1=1))

    assert scores == {"a1": 0, "a2": 33, "b1": 50, "bare": 100}


def test_pods_with_constraints_of_their_own_are_skipped() -> None:
    assert _scores(BARE, _pods(a=1), NEW.spread("zone", WEB)) == {}


def test_a_pod_that_nothing_selects_finds_all_nodes_alike() -> None:
    assert _scores(BARE, _pods(a=1), make_pod("new")) == {"a": 100, "b": 100, "c": 100}
