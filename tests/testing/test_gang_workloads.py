from __future__ import annotations

from collections import Counter

import pytest

from ksched.api.pod_resources import pod_requests
from ksched.groups.dialects.annotations import Annotations
from ksched.testing.gang_workloads import GANGS

CPUS = 32


@pytest.mark.parametrize("workload", GANGS)
def test_every_gang_needs_as_many_pods_as_it_has(workload: str) -> None:
    pods, dialect = 205, Annotations("GangScheduling")
    marks = [dialect.mark_of(GANGS[workload].pod(number, pods)) for number in range(pods)]
    sizes = Counter(mark.key for mark in marks if mark is not None)
    assert sizes.total() == pods
    for mark in marks:
        assert mark is not None
        assert mark.terms is not None
        assert mark.terms.minimum == sizes[mark.key]


@pytest.mark.parametrize("workload", [name for name in GANGS if "evict" in name])
def test_gangs_that_evict_fit_only_without_the_pods_that_run(workload: str) -> None:
    gangs = GANGS[workload]
    used = Counter[str]()
    for pod in gangs.running(3):
        used[pod.spec.node_name] += pod_requests(pod.spec)["cpu"] // 1000
        assert (pod.spec.priority or 0) < gangs.priority
    assert len(used) == 3
    assert all(CPUS - cpu < int(gangs.cpu) <= CPUS for cpu in used.values())


@pytest.mark.parametrize("workload", [name for name in GANGS if "full" in name])
def test_four_of_five_cpus_are_in_use_where_the_cluster_is_full(workload: str) -> None:
    used = [pod_requests(pod.spec)["cpu"] // 1000 for pod in GANGS[workload].running(100)]
    assert sum(used) == 0.8 * 100 * CPUS
    assert max(used) > CPUS - int(GANGS[workload].cpu)


def test_gangs_that_wait_come_before_single_pods() -> None:
    assert len(list(GANGS["besidehopeless"].refused(5000))) == 10_000
    assert not list(GANGS["gangshopeless"].refused(5000))
