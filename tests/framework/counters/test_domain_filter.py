"""One rule, asked of one domain and of all: the answers agree, and none is missed."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from functools import partial

import numpy as np
import pytest

from ksched.cache.cache import SchedulerCache
from ksched.framework import PodTemplate, unschedulable
from ksched.framework.counters import (
    Counted,
    Counts,
    DomainFilter,
    DomainRule,
    Holds,
    PodLedger,
    counters_of,
)
from ksched.testing import make_node, make_pod

STATUSES = (unschedulable("too many"), unschedulable("too few"), unschedulable("no zone"))
ZONES = 5


class Cluster:
    def __init__(self) -> None:
        self.cache = SchedulerCache(now=lambda: 0.0)
        for number in range(20):
            node = make_node(f"n{number}")
            if number % 7:
                node = node.label(zone=f"z{number % ZONES}")
            self.cache.add_node(node.obj())
        self.placed = 0

    @property
    def ledger(self) -> PodLedger:
        return counters_of(self.cache.update_snapshot().table)

    def place(self, node: str, app: str = "a") -> None:
        self.placed += 1
        name = f"p{self.placed}"
        pod = make_pod(name).uid(name).label(app=app).node(node).obj()
        self.cache.add_pod(self.cache.pod_info(pod))

    def remove(self, number: int) -> None:
        self.cache.remove_pod(f"p{number}")


def is_of(app: str, template: PodTemplate) -> int:
    return template.labels.get("app") == app


def rule(ledger: PodLedger) -> DomainRule:
    groups = []
    for app in ("a", "b"):
        pods = ledger.pod_counts(app, partial(is_of, app), include_terminating=False)
        groups.append((ledger.domain_counts(pods, "zone"),))
    return DomainRule(groups[0][0].topology, tuple(groups), judge, unlabelled=3)


def judge(counts: Sequence[Counts], lowest: int) -> Iterator[tuple[int, Holds]]:
    yield 1, counts[0] > lowest + 2
    yield 2, counts[1] < 1


def facts(counted: Sequence[Sequence[Counted]]) -> Sequence[Hashable]:
    return [groups[0].lowest for groups in counted]


@pytest.mark.parametrize("seed", range(8))
def test_what_follows_the_changes_is_what_judging_anew_says(seed: int) -> None:
    rng, cluster = random.Random(seed), Cluster()
    kept = DomainFilter([rule(cluster.ledger)], STATUSES, facts)
    mark: object = None
    known: list[int] = []
    for _ in range(60):
        for _ in range(rng.randrange(3)):
            if cluster.placed and rng.random() < 0.3:
                cluster.remove(rng.randrange(1, cluster.placed + 1))
            else:
                cluster.place(f"n{rng.randrange(20)}", rng.choice("ab"))
        nodes = cluster.cache.update_snapshot().table.all()
        cluster.ledger.catch_up()
        attempt = kept.catch_up()
        anew = DomainFilter([rule(cluster.ledger)], STATUSES, facts).catch_up()
        verdicts = attempt.verdicts(nodes)
        assert verdicts.codes.tolist() == anew.verdicts(nodes).codes.tolist()

        mark, changed = kept.changes_since(mark)
        if changed is None:
            known = verdicts.codes.tolist()
        elif isinstance(changed, np.ndarray):
            for row in changed.tolist():
                known[row] = int(verdicts.codes[row])
        else:
            for rows, status in changed.pieces:
                for row in rows.tolist():
                    known[row] = 0 if status.is_success else STATUSES.index(status) + 1
        assert known == verdicts.codes.tolist()


def test_a_dry_run_judges_by_other_numbers_and_leaves_the_kept_ones_alone() -> None:
    cluster = Cluster()
    for number in range(ZONES):
        cluster.place(f"n{number + 1}", "b")
    kept = DomainFilter([rule(cluster.ledger)], STATUSES, facts)
    attempt = kept.catch_up()
    nodes = cluster.cache.update_snapshot().table.all()
    before = attempt.verdicts(nodes).codes.tolist()
    tried = attempt.clone()
    tried.change(0, 0, "z1", 3)
    tried.change(0, 1, "z2", -1)
    codes = dict(zip(nodes.names, tried.verdicts(nodes).codes.tolist(), strict=True))
    assert (codes["n1"], codes["n2"], codes["n3"], codes["n7"]) == (1, 2, 0, 3)
    assert attempt.verdicts(nodes).codes.tolist() == before


def test_a_rule_that_raises_is_asked_about_the_same_domains_the_next_time() -> None:
    cluster = Cluster()
    fails = False

    def sometimes(counts: Sequence[Counts], fact: object) -> Iterator[tuple[int, Holds]]:
        if fails:
            raise ZeroDivisionError
        yield 1, counts[0] > 0

    counted = rule(cluster.ledger)
    kept = DomainFilter([counted._replace(judge=sometimes)], STATUSES)
    kept.catch_up()
    cluster.place("n1")
    cluster.ledger.catch_up()
    fails = True
    with pytest.raises(ZeroDivisionError):
        kept.catch_up()
    fails = False
    nodes = cluster.cache.update_snapshot().table.all()
    codes = dict(zip(nodes.names, kept.catch_up().verdicts(nodes).codes.tolist(), strict=True))
    assert (codes["n1"], codes["n2"]) == (1, 0)
