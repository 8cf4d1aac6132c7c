"""What the cache lacks, and what it has too much."""

from __future__ import annotations

import pytest

from ksched.cache.cache import SchedulerCache
from ksched.cache.compare import Differences, compare
from ksched.testing.builders import make_node, make_pod

NODE = make_node("n1").obj()
ASSIGNED = make_pod("assigned").uid("u1").node("n1").obj()
ELSEWHERE = make_pod("assigned").uid("u1").node("n2").obj()
PENDING = make_pod("pending").uid("u2").obj()
FOREIGN = make_pod("foreign").uid("u3").scheduler("other").obj()
ON_FOREIGN_WAY = make_pod("away").uid("u4").scheduler("other").node("n1").obj()


def differences(*, listed_nodes=(NODE,), cached_nodes=(NODE,), listed=(), cached=(), queued=()):
    cache = SchedulerCache(lambda: 0.0)
    for node in cached_nodes:
        cache.add_node(node)
    for pod in cached:
        cache.add_pod(cache.pod_info(pod))
    uids = {pod.metadata.uid for pod in queued}
    return compare(cache, uids.__contains__, listed_nodes, listed, {"default-scheduler"})


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param({}, Differences(), id="same nodes, no pods"),
        pytest.param(
            {"cached_nodes": ()}, Differences(missed_nodes=frozenset({"n1"})), id="missed node"
        ),
        pytest.param(
            {"listed_nodes": ()},
            Differences(redundant_nodes=frozenset({"n1"})),
            id="redundant node",
        ),
        pytest.param(
            {"listed_nodes": (), "cached_nodes": (), "listed": (ASSIGNED,), "cached": (ASSIGNED,)},
            Differences(),
            id="the ghost of a node with a pod is no node",
        ),
        pytest.param(
            {"listed": (ASSIGNED,), "cached": (ASSIGNED,)}, Differences(), id="assigned and cached"
        ),
        pytest.param(
            {"listed": (ASSIGNED,)},
            Differences(missed_pods=frozenset({"default/assigned (u1) on n1"})),
            id="missed assigned pod",
        ),
        pytest.param(
            {"cached": (ASSIGNED,)},
            Differences(redundant_pods=frozenset({"default/assigned (u1) on n1"})),
            id="redundant assigned pod",
        ),
        pytest.param(
            {"listed": (ELSEWHERE,), "cached": (ASSIGNED,)},
            Differences(
                missed_pods=frozenset({"default/assigned (u1) on n2"}),
                redundant_pods=frozenset({"default/assigned (u1) on n1"}),
            ),
            id="pod on another node",
        ),
        pytest.param({"listed": (PENDING,), "queued": (PENDING,)}, Differences(), id="queued"),
        pytest.param(
            {"listed": (PENDING,)},
            Differences(missed_pods=frozenset({"default/pending (u2)"})),
            id="missed pending pod",
        ),
        pytest.param({"listed": (FOREIGN,)}, Differences(), id="pending pod of another scheduler"),
        pytest.param(
            {"listed": (ON_FOREIGN_WAY,)},
            Differences(missed_pods=frozenset({"default/away (u4) on n1"})),
            id="assigned pods of other schedulers count too",
        ),
    ],
)
def test_differences(state, expected):
    found = differences(**state)

    assert found == expected
    assert bool(found) == (expected != Differences())


def test_assumed_pod_is_not_redundant():
    cache = SchedulerCache(lambda: 0.0)
    cache.add_node(NODE)
    cache.assume_pod(cache.pod_info(PENDING).on_node("n1"))

    assert not compare(cache, lambda uid: False, [NODE], [PENDING], {"default-scheduler"})


def test_only_what_differs_twice_is_left():
    first = Differences(missed_nodes=frozenset({"a", "b"}), missed_pods=frozenset({"p"}))
    second = Differences(missed_nodes=frozenset({"b", "c"}))

    assert first & second == Differences(missed_nodes=frozenset({"b"}))
