"""Measure what set the numbers of ``ksched/tuning.py``: both ways to do a thing, over sizes.

Run ``python -m tools.tuning`` in the repository, on a machine that does nothing else. Each line is
one size with the microseconds of both ways, least of several runs; the number to choose is the size
at which the columns cross.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from timeit import repeat
from types import ModuleType

import numpy as np

from ksched.api.objects import Pod
from ksched.cache.cache import SchedulerCache
from ksched.cache.counters import domain_counts, topology_domains
from ksched.cache.counters.pod_ledger import counters_of
from ksched.cache.node_table import NodeTable
from ksched.framework.counters import domain_scores
from ksched.framework.plugins import image_locality, node_demand
from ksched.framework.plugins.inter_pod_affinity import scoring
from ksched.framework.plugins.inter_pod_affinity.terms import compile_terms
from ksched.framework.plugins.node_demand import NodeDemand
from ksched.framework.runtime import codes
from ksched.testing import make_node, make_pod

NODES = 5_000
Way = Callable[[], object]


def micros(way: Way, number: int = 20) -> float:
    return min(repeat(way, number=number, repeat=5)) / number * 1e6


@contextmanager
def constant(module: ModuleType, name: str, value: int) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def compare(title: str, sizes: list[int], ways: Callable[[int], tuple[Way, Way]]) -> None:
    print(f"\n{title}")
    for size in sizes:
        one, other = ways(size)
        print(f"  {size:6d} {micros(one):10.1f} {micros(other):10.1f}")


def with_constant(module: ModuleType, name: str, value: int, way: Way) -> Way:
    def run() -> object:
        with constant(module, name, value):
            return way()

    return run


def cluster(domains: int = 10) -> SchedulerCache:
    cache = SchedulerCache(now=lambda: 0.0)
    for number in range(NODES):
        labels = {"zone": f"z{number % domains}"}
        node = make_node(f"n{number}").capacity(cpu="32", pods="110").label(**labels)
        cache.add_node(node.obj())
    return cache


def run_pod(cache: SchedulerCache, name: str, node: str) -> None:
    pod: Pod = make_pod(name).uid(name).label(app="web").node(node).obj()
    cache.add_pod(cache.pod_info(pod))


def few_rows(size: int) -> tuple[Way, Way]:
    array = np.zeros(NODES, np.int32)[:size]

    def look() -> object:
        return codes._range(array)

    return (
        with_constant(codes, "FEW_ROWS", 10**9, look),
        with_constant(codes, "FEW_ROWS", 0, look),
    )


def few_domains_summed(size: int) -> tuple[Way, Way]:
    counts, nodes = np.arange(size), np.ones(size, np.int64)

    def look() -> object:
        return domain_counts.summarize(counts, nodes)

    name = "FEW_DOMAINS_SUMMED"
    return (
        with_constant(domain_counts, name, 10**9, look),
        with_constant(domain_counts, name, 0, look),
    )


def zone_counter(cache: SchedulerCache) -> domain_counts.DomainCounts:
    ledger = counters_of(cache.update_snapshot().table)
    pods = ledger.pod_counts("all", lambda template: 1, include_terminating=True)
    counter = ledger.domain_counts(pods, "zone")
    counter.catch_up()
    return counter


def few_domains_rated(size: int) -> tuple[Way, Way]:
    cache = cluster(size - 1)
    run_pod(cache, "p", "n3")
    counter = zone_counter(cache)
    table = cache.snapshot.table
    nodes = table.some(np.arange(NODES))
    affinity = scoring.PreferredAffinity([(1, counter)])

    def as_array() -> object:
        raw = affinity.score(nodes)
        return scoring.normalize(raw) if isinstance(raw, np.ndarray) else raw

    def one_by_one() -> object:
        raw = affinity.score(nodes)
        assert not isinstance(raw, np.ndarray)
        return np.array(raw.values, np.int64).take(raw.ids)

    return (
        with_constant(domain_scores, "FEW_DOMAINS_RATED", 10**9, one_by_one),
        with_constant(domain_scores, "FEW_DOMAINS_RATED", 0, as_array),
    )


def changed_pods(size: int) -> tuple[Way, Way]:
    cache = cluster()
    for number in range(2 * NODES):
        run_pod(cache, f"p{number}", f"n{number % NODES}")
    counter = zone_counter(cache)
    for number in range(size):
        run_pod(cache, f"q{number}", f"n{number}")
    counters_of(cache.update_snapshot().table)
    changes = counter.pods.ledger.log.since(counter.pods.ledger.log.generation - size) or []

    def one_by_one() -> object:
        for row, more in counter.pods.added_by(changes):
            counter._count(row, more)
        return None

    return one_by_one, counter._start_over


def changed_nodes(size: int) -> tuple[Way, Way]:
    table: NodeTable = cluster().update_snapshot().table
    topology = topology_domains.TopologyDomains(table, "zone", None)
    topology.catch_up()
    column = table.label_column("zone")

    def one_by_one() -> object:
        for row in range(size):
            topology._put(row, int(column.ids[row]), int(column.ids[row]))
        return None

    return one_by_one, topology._start_over


def images(size: int) -> tuple[Way, Way]:
    cache = SchedulerCache(now=lambda: 0.0)
    for number in range(NODES):
        names = [f"image{number % 20 + one}:latest" for one in range(50)]
        status = {"images": [{"names": [name], "sizeBytes": 1 << 28} for name in names]}
        cache.add_node(make_node(f"n{number}").merge({"status": status}).obj())
    nodes = cache.update_snapshot().table.all()
    counted = {f"image{number}:latest": 1 for number in range(size)}

    def look() -> object:
        return image_locality._present_bytes(counted, nodes)

    return (
        with_constant(image_locality, "FEW_IMAGES", 10**9, look),
        with_constant(image_locality, "FEW_IMAGES", 0, look),
    )


def large_selector(size: int) -> tuple[Way, Way]:
    cache = cluster()
    expressions = [
        [{"key": "zone", "operator": "In", "values": [f"z{number % 9}", f"other{number}"]}]
        for number in range(size)
    ]
    terms = [{"matchExpressions": one} for one in expressions]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = make_pod("p").merge({"spec": {"affinity": {"nodeAffinity": required}}})
    template = cache.pod_info(pod.obj()).template
    nodes = cache.update_snapshot().table.all()
    with constant(node_demand, "LARGE_SELECTOR", 10**9):
        demand = NodeDemand(template)
    return lambda: NodeDemand(template), lambda: demand.matches(nodes)


def terms(size: int) -> tuple[Way, Way]:
    pod = make_pod("p")
    for number in range(size):
        pod = pod.pod_anti_affinity("zone", {"app": f"a{number}"})
    affinity = pod.obj().spec.affinity
    assert affinity is not None
    assert affinity.pod_anti_affinity is not None
    required = affinity.pod_anti_affinity.required
    return lambda: compile_terms("default", required), lambda: None


def main() -> None:
    compare("FEW_ROWS: range of codes, list / array", [4, 8, 16, 32, 64], few_rows)
    compare(
        "FEW_DOMAINS_SUMMED: emptiest domain, list / array",
        [16, 32, 64, 128, 256],
        few_domains_summed,
    )
    compare(
        "FEW_DOMAINS_RATED: scores of 5,000 nodes, by domain / by node",
        [8, 32, 128, 512],
        few_domains_rated,
    )
    compare(
        "MANY_CHANGES: pods of 5,000 nodes and 10,000 pods, change by change / anew",
        [64, 256, 690, 2000],
        changed_pods,
    )
    compare("MANY_CHANGES: nodes of 5,000, one by one / anew", [64, 256, 690, 2000], changed_nodes)
    compare("FEW_IMAGES: on 5,000 nodes, by image / by node", [1, 4, 8, 16, 32], images)
    compare("LARGE_SELECTOR: compile / ask 5,000 nodes", [16, 64, 256], large_selector)
    compare("TERMS_PER_STEP: compile", [16, 64, 256], terms)


if __name__ == "__main__":
    main()
