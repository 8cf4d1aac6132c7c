"""plugins/interpodaffinity/scoring.go."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from ksched.cache.listers import Listers
from ksched.configuration.plugin_args import InterPodAffinityArgs
from ksched.framework.plugins.inter_pod_affinity.plugin import InterPodAffinity
from ksched.framework.plugins.inter_pod_affinity.scoring import normalize
from ksched.testing.builders import PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench

DB, WEB = {"app": "db"}, {"app": "web"}
NODES = [
    make_node("a1").label(zone="a"),
    make_node("a2").label(zone="a"),
    make_node("b1").label(zone="b"),
    make_node("bare"),
]


def _scores(
    pod: PodBuilder,
    running: Iterable[PodBuilder],
    *,
    hard_weight: int = 1,
    ignore_existing: bool = False,
) -> dict[str, int]:
    args = InterPodAffinityArgs(
        hard_pod_affinity_weight=hard_weight,
        ignore_preferred_terms_of_existing_pods=ignore_existing,
    )
    bench = PluginBench([node.obj() for node in NODES], [one.obj() for one in running])
    return bench.score(InterPodAffinity(args, Listers(), lambda: 0.0), pod.obj())


def _on(node: str, name: str = "x") -> PodBuilder:
    return make_pod(f"{name}-{node}").node(node)


SKIPPED: dict[str, int] = {}


@pytest.mark.parametrize(
    ("pod", "running", "scores"),
    [
        pytest.param(
            make_pod().pod_affinity("zone", DB, weight=5),
            [_on("a1").label(DB)],
            {"a1": 100, "a2": 100, "b1": 0, "bare": 0},
            id="prefers the zone of a pod",
        ),
        pytest.param(
            make_pod().pod_anti_affinity("zone", DB, weight=5),
            [_on("a1").label(DB)],
            {"a1": 0, "a2": 0, "b1": 100, "bare": 100},
            id="prefers other zones",
        ),
        pytest.param(
            make_pod()
            .pod_affinity("zone", DB, weight=5)
            .pod_anti_affinity("kubernetes.io/hostname", DB, weight=3),
            [_on("a1").label(DB)],
            {"a1": 40, "a2": 100, "b1": 0, "bare": 0},
            id="prefers the zone, and another node in it",
        ),
        pytest.param(
            make_pod().pod_affinity("zone", DB, weight=8).pod_anti_affinity("zone", WEB, weight=3),
            [_on("a1").label(DB), _on("b1").label(WEB)],
            {"a1": 100, "a2": 100, "b1": 0, "bare": 27},
            id="3 of 11 is less than 27.3",
        ),
        pytest.param(
            make_pod().pod_affinity("zone", DB, weight=5),
            [_on("a1").label(DB).terminating(), _on("b1").label(DB), _on("b1", "y").label(DB)],
            {"a1": 50, "a2": 50, "b1": 100, "bare": 0},
            id="every pod counts, also one being deleted",
        ),
        pytest.param(
            make_pod().label(WEB),
            [_on("a1").pod_affinity("zone", WEB, weight=7)],
            {"a1": 100, "a2": 100, "b1": 0, "bare": 0},
            id="an existing pod prefers it near",
        ),
        pytest.param(
            make_pod().label(WEB),
            [_on("a1").pod_anti_affinity("zone", WEB, weight=7)],
            {"a1": 0, "a2": 0, "b1": 100, "bare": 100},
            id="an existing pod prefers it away",
        ),
        pytest.param(
            make_pod().label(WEB),
            [_on("a1").pod_affinity("zone", WEB), _on("b1").pod_affinity("zone", WEB, weight=4)],
            {"a1": 25, "a2": 25, "b1": 100, "bare": 0},
            id="a required term of an existing pod weighs one",
        ),
        pytest.param(
            make_pod().label(WEB),
            [
                _on("a1").pod_affinity("zone", WEB, weight=7),
                _on("a2").pod_anti_affinity("zone", WEB, weight=7),
            ],
            {"a1": 0, "a2": 0, "b1": 0, "bare": 0},
            id="opposite wishes cancel out, but were heard",
        ),
        pytest.param(make_pod().label(WEB), [_on("a1").label(DB)], SKIPPED, id="nobody cares"),
        pytest.param(
            make_pod().pod_affinity("zone", DB, weight=5), [_on("a1")], SKIPPED, id="means nobody"
        ),
        pytest.param(
            make_pod().pod_affinity("zone", DB, weight=5),
            [_on("bare").label(DB)],
            SKIPPED,
            id="means a pod in no zone",
        ),
        pytest.param(
            make_pod().label(WEB),
            [_on("a1").pod_anti_affinity("zone", WEB)],
            SKIPPED,
            id="a required anti-affinity is not scored",
        ),
    ],
)
def test_preferences_of_both_sides_add_up(
    pod: PodBuilder, running: list[PodBuilder], scores: dict[str, int]
) -> None:
    assert _scores(pod, running) == scores


@pytest.mark.parametrize(
    ("hard_weight", "scores"),
    [
        pytest.param(0, SKIPPED, id="off"),
        pytest.param(4, {"a1": 100, "a2": 100, "b1": 0, "bare": 0}, id="on"),
    ],
)
def test_required_terms_of_existing_pods_weigh_what_the_argument_says(
    hard_weight: int, scores: dict[str, int]
) -> None:
    running = [_on("a1").pod_affinity("zone", WEB)]

    assert _scores(make_pod().label(WEB), running, hard_weight=hard_weight) == scores


def test_wishes_of_existing_pods_can_be_ignored_unless_the_pod_has_some() -> None:
    running = [_on("a1").label(DB).pod_affinity("zone", WEB, weight=7)]
    plain, picky = make_pod().label(WEB), make_pod().label(WEB).pod_affinity("zone", DB, weight=3)

    assert _scores(plain, running, ignore_existing=True) == SKIPPED
    assert _scores(picky, running, ignore_existing=True)["a1"] == 100


def test_scores_are_stretched_over_the_whole_range() -> None:
    assert normalize(np.array([5, -3, 0])).tolist() == [100, 0, 37]
    assert normalize(np.array([4, 4])).tolist() == [0, 0]
    assert normalize(np.array([29, 0, 100])).tolist() == [28, 0, 100], "cut off, as upstream"
