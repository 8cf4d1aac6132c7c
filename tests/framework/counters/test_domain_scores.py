"""Scores by domain and by node are the same scores."""

from __future__ import annotations

import numpy as np
import pytest

from ksched.cache.cache import SchedulerCache
from ksched.framework import ClassScores
from ksched.framework.counters import (
    counters_of,
    domain_scores,
    normalize_scores,
    rate_domains,
    whole,
)
from ksched.framework.plugins.inter_pod_affinity.scoring import stretched
from ksched.framework.plugins.pod_topology_spread.scoring import emptier
from ksched.testing import make_node


@pytest.mark.parametrize("normalize", [stretched, emptier])
@pytest.mark.parametrize("raw", [[0, 7, 3, 9], [0, 5, 5, 5], [0, 0, 0, 0]])
def test_few_domains_are_rated_as_the_nodes_would_be(
    normalize: domain_scores.Normalize, raw: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = SchedulerCache(now=lambda: 0.0)
    for number in range(9):
        cache.add_node(make_node(f"n{number}").label(zone=f"z{number % 3}").obj())
    snapshot = cache.update_snapshot()
    nothing = counters_of(snapshot.table).pod_counts("none", lambda _: 0, include_terminating=False)
    counter = counters_of(snapshot.table).domain_counts(nothing, "zone")
    counter.catch_up()
    by_domain = np.array(raw, np.int64)
    nodes = snapshot.table.all()

    classes = rate_domains(counter.topology, by_domain, nodes, normalize)
    assert isinstance(classes, ClassScores)
    monkeypatch.setattr(domain_scores, "FEW_DOMAINS_RATED", 0)
    by_node = rate_domains(counter.topology, by_domain, nodes, normalize)
    assert isinstance(by_node, np.ndarray)

    wanted = normalize_scores(by_node, normalize).tolist()
    assert [classes.values[domain] for domain in classes.ids.tolist()] == wanted
    # Where the nodes' are equal, also that of the domain without nodes: one number is for all.
    assert len({*wanted}) > 1 or {*classes.values} == {*wanted}


def test_whole_cuts_off_what_is_behind_the_point() -> None:
    assert whole(2.9) == 2
    assert whole(np.array([2.9, -2.9])).tolist() == [2, -2]
