"""Counters of pods by row and by topology domain, against counting anew."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ksched.cache.cache import SchedulerCache
from ksched.cache.counters.domain_counts import DomainCounts
from ksched.cache.counters.pod_ledger import PodLedger, counters_of
from ksched.cache.counters.topology_domains import ABSENT, Bools
from ksched.cache.node_table import NodeRows
from ksched.cache.pod_info import PodTemplate
from ksched.testing.builders import make_node, make_pod

ZONE = "zone"


def is_web(template: PodTemplate) -> int:
    return int(template.labels.get("app") == "web")


def is_large(nodes: NodeRows) -> Bools:
    large: Bools = nodes.label("size").ids != 0
    return large


class Cluster:
    """A cache with pods of two apps on nodes in zones, and the counters under test."""

    def __init__(self) -> None:
        self.cache = SchedulerCache(lambda: 0.0)
        self.table = self.cache.snapshot.table
        self.ledger = counters_of(self.table)
        self.made = 0

    def put(self, name: str, zone: str | None = "a", *, large: bool = True) -> None:
        node = make_node(name)
        if zone is not None:
            node = node.label({ZONE: zone})
        self.cache.add_node((node.label(size="large") if large else node).obj())

    def run(self, node: str, app: str = "web", *, terminating: bool = False) -> str:
        self.made += 1
        pod = make_pod(f"p{self.made}").label(app=app).node(node)
        obj = (pod.terminating() if terminating else pod).obj()
        self.cache.add_pod(self.cache.pod_info(obj))
        return obj.metadata.uid

    def counter(
        self, *, only_large: bool = False, include_terminating: bool = False
    ) -> DomainCounts:
        pods = self.ledger.pod_counts("web", is_web, include_terminating=include_terminating)
        if only_large:
            return self.ledger.domain_counts(pods, ZONE, "large", is_large)
        return self.ledger.domain_counts(pods, ZONE)

    def counts(self, counter: DomainCounts) -> dict[str | None, int]:
        """Pods by zone, of domains that exist."""
        self.cache.update_snapshot()
        self.ledger.catch_up()
        counter.catch_up()
        values = self.table.label_column(ZONE).vocabulary.values
        return {
            value: int(counter.counts[number])
            for number, value in enumerate(values)
            if counter.topology.nodes[number]
        }


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", None)):
        cluster.put(name, zone)
    return cluster


def test_domains_add_up_their_nodes(cluster: Cluster) -> None:
    for node in ("n1", "n1", "n2", "n4"):
        cluster.run(node)
    cluster.run("n3", app="db")
    counter = cluster.counter()

    assert cluster.counts(counter) == {"a": 3, "b": 0, None: 1}
    assert (counter.domains, counter.lowest, counter.total) == (2, 0, 3)


def test_pods_come_and_go(cluster: Cluster) -> None:
    counter = cluster.counter()
    first, _ = cluster.run("n1"), cluster.run("n3")
    assert cluster.counts(counter) == {"a": 1, "b": 1, None: 0}

    cluster.cache.remove_pod(first)
    assert cluster.counts(counter) == {"a": 0, "b": 1, None: 0}


def test_a_pod_on_its_way_out_counts_only_if_asked_for(cluster: Cluster) -> None:
    staying, leaving = cluster.counter(), cluster.counter(include_terminating=True)
    cluster.run("n1", terminating=True)

    assert cluster.counts(staying)["a"] == 0
    assert cluster.counts(leaving)["a"] == 1


def test_a_relabelled_node_takes_its_pods_along(cluster: Cluster) -> None:
    counter = cluster.counter()
    cluster.run("n1")
    cluster.counts(counter)

    cluster.put("n1", "c")
    assert cluster.counts(counter) == {"a": 0, "b": 0, "c": 1, None: 0}


def test_a_node_that_is_not_eligible_any_more_counts_no_more(cluster: Cluster) -> None:
    counter = cluster.counter(only_large=True)
    cluster.run("n3")
    assert cluster.counts(counter) == {"a": 0, "b": 1, None: 0}

    cluster.put("n3", "b", large=False)
    assert cluster.counts(counter) == {"a": 0, None: 0}
    assert counter.domains == 1


def test_the_last_row_moves_into_the_gap(cluster: Cluster) -> None:
    counter = cluster.counter()
    cluster.run("n1")
    cluster.run("n4")
    cluster.counts(counter)

    cluster.cache.remove_node("n1")
    assert cluster.counts(counter) == {"a": 0, "b": 0, None: 1}
    assert counter.topology.all_ids.tolist() == [
        counter.topology.find(info.labels.get(ZONE)) for info in cluster.table.infos
    ]


def test_the_version_changes_with_the_nodes_and_not_with_the_pods(cluster: Cluster) -> None:
    counter = cluster.counter()
    cluster.counts(counter)
    before = counter.topology.generation

    cluster.run("n1")
    cluster.counts(counter)
    assert counter.topology.generation == before

    cluster.put("n4", "b")
    cluster.counts(counter)
    assert counter.topology.generation != before


def test_rows_of_a_domain_are_found_after_other_domains_came_and_went(cluster: Cluster) -> None:
    counter = cluster.counter()
    cluster.counts(counter)
    assert counter.topology.rows_in([counter.topology.find("b")]).tolist() == [2]

    for number in range(4):
        cluster.put(f"passing-{number}", f"z{number}")
        cluster.cache.update_snapshot()
        cluster.cache.remove_node(f"passing-{number}")
    cluster.counts(counter)
    passed = counter.topology.find("z3")
    assert counter.topology.rows_in([counter.topology.find("b"), passed]).tolist() == [2]


def test_the_log_names_domains_whose_numbers_changed(cluster: Cluster) -> None:
    counter = cluster.counter()
    cluster.counts(counter)
    position = counter.log.generation

    cluster.run("n3")
    cluster.run("n1", app="db")
    cluster.counts(counter)
    assert counter.log.since(position) == [counter.topology.find("b")]


def test_equal_counters_are_one_as_long_as_somebody_holds_it(cluster: Cluster) -> None:
    one, other = cluster.counter(), cluster.counter()

    assert one is other
    assert cluster.counter(only_large=True) is not one


def test_a_reader_that_fell_behind_starts_over() -> None:
    cluster = Cluster()
    cluster.ledger = PodLedger(cluster.table, limit=4)
    cluster.put("n1", "a")
    behind = cluster.counter()
    cluster.counts(behind)
    for _ in range(40):
        cluster.run("n1")
        cluster.cache.update_snapshot()
        cluster.ledger.catch_up()

    assert cluster.ledger.log.since(0) is None
    assert cluster.counts(behind) == {"a": 40}


def test_values_are_renumbered_when_most_are_out_of_use() -> None:
    """Host names of a churning cluster: the label column is written anew under the counter."""
    cluster = Cluster()
    cluster.put("n1", "out of use")
    cluster.run("n1")
    counter = cluster.counter()
    cluster.counts(counter)
    cluster.put("n1", "a")
    vocabulary = cluster.table.label_column(ZONE).vocabulary
    for number in range(1100):
        cluster.put("n2", f"z{number}")
        assert cluster.counts(counter) == {"a": 1, f"z{number}": 0}
    cluster.run("n2")

    assert cluster.counts(counter) == {"a": 1, "z1099": 1}
    assert cluster.table.label_column(ZONE).vocabulary is not vocabulary
    assert counter.topology.find("z5") == -1


def test_nodes_of_an_overlay_are_found_by_their_labels(cluster: Cluster) -> None:
    counter = cluster.counter()
    cluster.counts(counter)
    elsewhere = cluster.table.infos[0].clone()
    elsewhere.set_node(make_node("n9").label({ZONE: "nowhere"}).obj())
    overlay = cluster.cache.snapshot.overlay([elsewhere, cluster.table.infos[2].clone()])

    assert counter.topology.ids(overlay.all()).tolist() == [-1, counter.topology.find("b")]
    assert counter.counts[counter.topology.ids(overlay.all())].tolist() == [0, 0]


def test_domains_of_some_rows(cluster: Cluster) -> None:
    counter = cluster.counter()
    cluster.counts(counter)
    rows = np.array([3, 0], np.intp)

    assert counter.topology.ids(cluster.table.some(rows)).tolist() == [
        ABSENT,
        counter.topology.find("a"),
    ]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_counters_agree_with_counting_anew(seed: int) -> None:
    random = Random(seed)
    cluster = Cluster()
    uids: list[str] = []
    counters = [
        cluster.counter(only_large=only_large, include_terminating=include_terminating)
        for only_large in (False, True)
        for include_terminating in (False, True)
    ]
    for _ in range(40):
        name = f"n{random.randrange(8)}"
        match random.randrange(6):
            case 0 | 1:
                zone = random.choice([None, "a", "b", "c", ""])
                cluster.put(name, zone, large=random.random() < 0.7)
            case 2:
                cluster.cache.remove_node(name)
            case 3 | 4:
                app = random.choice(["web", "db"])
                uids.append(cluster.run(name, app, terminating=random.random() < 0.3))
            case _ if uids:
                uid = uids.pop(random.randrange(len(uids)))
                cluster.cache.remove_pod(uid)
        if random.random() < 0.6:
            # The other counters catch up with several changes at once.
            _compare(cluster, random.choice(counters))
    for counter in counters:
        _compare(cluster, counter)


def _compare(cluster: Cluster, counter: DomainCounts) -> None:
    cluster.cache.update_snapshot()
    cluster.ledger.catch_up()
    counter.catch_up()
    pods: dict[str | None, int] = {}
    nodes: dict[str | None, int] = {}
    for info in cluster.table.infos:
        is_in = counter.topology._eligible is None or "size" in info.labels
        matching = [pod for pod in info.pods.values() if pod.labels.get("app") == "web"]
        if not counter.pods._include_terminating:
            matching = [pod for pod in matching if not pod.is_terminating]
        if is_in:
            zone = info.labels.get(ZONE)
            nodes[zone] = nodes.get(zone, 0) + 1
            pods[zone] = pods.get(zone, 0) + len(matching)
    values = cluster.table.label_column(ZONE).vocabulary.values
    assert {values[i]: n for i, n in enumerate(counter.topology.nodes.tolist()) if n} == nodes
    assert {
        values[i]: int(counter.counts[i]) for i in range(len(values)) if counter.topology.nodes[i]
    } == pods
    labelled = [number for zone, number in pods.items() if zone is not None]
    assert (counter.domains, counter.lowest) == (len(labelled), min(labelled, default=0))
    assert counter.total == sum(labelled)
    assert counter.counts[-1] == 0
