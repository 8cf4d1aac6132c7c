"""Which terms are in the cluster, and which of them mean a pod, as pods come and go."""

from __future__ import annotations

import pytest

from ksched.api.objects import Pod
from ksched.cache.cache import SchedulerCache
from ksched.framework.counters import counters_of
from ksched.framework.plugins.inter_pod_affinity.filtering import carried_anti_affinity
from ksched.framework.plugins.inter_pod_affinity.terms import AffinityTerm, MatchedTerms, TermIndex
from ksched.steps import at_once
from ksched.testing.builders import PodBuilder, make_node, make_pod
from lab.decider import Decider

WEB = {"app": "web"}


class Cluster:
    def __init__(self) -> None:
        self.cache = SchedulerCache(lambda: 0.0)
        self.label_node("zone", "rack")
        self.index = TermIndex(
            counters_of(self.cache.snapshot.table), carried_anti_affinity, lambda term: term
        )
        self.asked: list[str] = []
        self.matched = MatchedTerms(self.index, self._matches)

    def label_node(self, *keys: str) -> None:
        self.cache.add_node(make_node("n").label(dict.fromkeys(keys, "here")).obj())

    def _matches(self, term: AffinityTerm) -> bool:
        self.asked.append(term.topology_key)
        return term.topology_key.startswith("zone")

    def add(self, name: str, *keys: str) -> str:
        pod = make_pod(name).node("n")
        for key in keys:
            pod = pod.pod_anti_affinity(key, WEB)
        obj = pod.obj()
        self.cache.add_pod(self.cache.pod_info(obj))
        return obj.metadata.uid

    def keys(self) -> set[str]:
        counters_of(self.cache.update_snapshot().table)
        at_once(self.index.catching_up())
        at_once(self.matched.catching_up())
        return {term.topology_key for term in self.matched.found}


def test_terms_come_with_their_first_pod_and_go_with_their_last() -> None:
    cluster = Cluster()
    assert cluster.keys() == set()

    one, other = cluster.add("1", "zone", "rack"), cluster.add("2", "zone")
    assert cluster.keys() == {"zone"}
    assert len(cluster.index) == 2

    cluster.cache.remove_pod(one)
    assert cluster.keys() == {"zone"}
    assert len(cluster.index) == 1

    cluster.cache.remove_pod(other)
    assert cluster.keys() == set()
    assert not cluster.index


def test_each_term_is_asked_about_once() -> None:
    cluster = Cluster()
    for number in range(5):
        cluster.add(f"{number}", "zone", "rack")
        cluster.keys()

    assert sorted(cluster.asked) == ["rack", "zone"]


def test_a_term_that_comes_back_is_found_again() -> None:
    cluster = Cluster()
    uid = cluster.add("1", "zone")
    assert cluster.keys() == {"zone"}
    cluster.cache.remove_pod(uid)
    assert cluster.keys() == set()

    cluster.add("2", "zone")
    assert cluster.keys() == {"zone"}


def test_terms_of_pods_long_gone_are_forgotten() -> None:
    cluster = Cluster()
    cluster.label_node("zone", *(f"zone{number}" for number in range(300)))
    cluster.add("stays", "zone")
    for number in range(300):
        cluster.cache.remove_pod(cluster.add(f"{number}", f"zone{number}"))
        uid = cluster.add(f"again{number}", f"zone{number}")
        assert cluster.keys() == {"zone", f"zone{number}"}
        cluster.cache.remove_pod(uid)
    assert cluster.keys() == {"zone"}

    cluster.index.forget_gone()
    cluster.index.forget_gone()
    assert cluster.index.log.since(cluster.index.generation - 1) is None
    assert cluster.keys() == {"zone"}


def test_terms_of_a_key_that_no_node_has_are_not_asked_about_until_one_has_it() -> None:
    cluster = Cluster()
    uid = cluster.add("1", *(f"zone{number}" for number in range(100)))
    assert cluster.keys() == set()
    assert (len(cluster.index), cluster.asked) == (0, [])

    cluster.label_node("zone7", "rack")
    assert cluster.keys() == {"zone7"}
    assert cluster.asked == ["zone7"]

    cluster.label_node("rack")
    assert cluster.keys() == set()

    cluster.label_node("zone8")
    cluster.cache.remove_pod(uid)
    assert cluster.keys() == set()
    assert not cluster.index._keys


def test_work_given_up_at_any_pause_is_done_the_next_time() -> None:
    cluster = Cluster()
    cluster.label_node(*(f"zone{number}" for number in range(1000)), "rack")
    wanted = {f"zone{number}" for number in range(1000)}
    cluster.add("1", *wanted)
    cluster.add("2", *wanted, "rack")
    counters_of(cluster.cache.update_snapshot().table)
    for catching_up in (cluster.index.catching_up, cluster.matched.catching_up):
        for steps in range(50):
            work = catching_up()
            for _ in range(steps):
                next(work, None)
            work.close()

    assert cluster.keys() == wanted
    assert len(cluster.index) == 1001
    assert sorted(cluster.asked) == sorted({*wanted, "rack"})


# -- the first pod of a group, over time ---------------------------------------------------------


async def _feasible(decider: Decider, pod: PodBuilder) -> set[str]:
    return set((await decider.decide(pod.obj())).feasible)


@pytest.fixture
def decider() -> Decider:
    decider = Decider()
    decider.set_cluster(
        make_node(name).label(zone=name[0], rack=name).obj() for name in ("a1", "a2", "b1")
    )
    return decider


def _bound(decider: Decider, pod: PodBuilder, node: str) -> Pod:
    obj = pod.uid(f"on {node}").node(node).obj()
    decider.cache.add_pod(decider.cache.pod_info(obj))
    return obj


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(make_pod("g").label(WEB).pod_affinity("zone", WEB), id="one key"),
        pytest.param(
            make_pod("g").label(WEB).pod_affinity("zone", WEB).pod_affinity("rack", {}),
            id="two keys, one of which is satisfied later",
        ),
    ],
)
async def test_the_first_pod_of_a_group_decides_for_the_others(
    decider: Decider, group: PodBuilder
) -> None:
    assert await _feasible(decider, group) == {"a1", "a2", "b1"}

    first = _bound(decider, group, "b1")
    assert await _feasible(decider, group) == {"b1"}

    decider.cache.remove_pod(first.metadata.uid)
    assert await _feasible(decider, group) == {"a1", "a2", "b1"}

    _bound(decider, group, "a1")
    assert "b1" not in await _feasible(decider, group)


async def test_pods_are_told_apart_as_soon_as_a_term_asks_for_their_labels(
    decider: Decider,
) -> None:
    """Until then they share what means them; what was found stays true for both."""
    web, db = make_pod("w").label(app="web"), make_pod("d").label(app="db")
    _bound(decider, make_pod("1").pod_anti_affinity("zone", {"tier": "gold"}), "a1")
    gold = make_pod("g").label(app="db", tier="gold")
    assert await _feasible(decider, web) == await _feasible(decider, db) == {"a1", "a2", "b1"}
    assert await _feasible(decider, gold) == {"b1"}

    second = _bound(decider, make_pod("2").pod_anti_affinity("rack", {"app": "db"}), "b1")
    assert await _feasible(decider, web) == {"a1", "a2", "b1"}
    assert await _feasible(decider, db) == {"a1", "a2"}
    assert await _feasible(decider, gold) == set()

    decider.cache.remove_pod(second.metadata.uid)
    _bound(decider, make_pod("3").pod_anti_affinity("zone", {"app": "web"}), "b1")
    assert await _feasible(decider, web) == {"a1", "a2"}
    assert await _feasible(decider, db) == {"a1", "a2", "b1"}
    assert await _feasible(decider, gold) == {"b1"}
