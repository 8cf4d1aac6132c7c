"""A node's sums and counts are those of its pods, whatever changes of them."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ksched.cache.cache import SchedulerCache
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo
from ksched.cache.resource_axis import Demand
from ksched.testing import make_node, make_pod
from ksched.testing.builders import PodBuilder

HOSTNAME = "kubernetes.io/hostname"


def published(cache: SchedulerCache) -> NodeInfo:
    info = cache.update_snapshot().get("n")
    assert info is not None
    return info


def everything(info: NodeInfo) -> dict[str, Any]:
    """All that a node says of its pods, with their order."""
    return {
        "pods": list(info.pods.values()),
        "amounts": info.amounts,
        "ports": info.used_ports,
        "claims": info.claims,
        "running": info.running,
        "terminating": info.terminating,
        "affinity": list(info.pods_with_affinity.values()),
        "anti-affinity": list(info.pods_with_required_anti_affinity.values()),
    }


def recounted(info: NodeInfo) -> dict[str, Any]:
    fresh = NodeInfo(info.name, info.axis)
    assert info.node is not None
    fresh.set_node(info.node)
    for pod in info.pods.values():
        fresh.add_pod(pod)
    return everything(fresh)


def a_pod(rng: random.Random, number: int) -> PodBuilder:
    pod = make_pod(f"p{number}").node("n")
    shapes = (
        pod.req(cpu="1"),
        pod.host_port(80),
        pod.pvc("data"),
        pod.label(app="a").pod_anti_affinity(HOSTNAME, {"app": "a"}),
    )
    return rng.choice(shapes)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_counts_follow_the_pods(seed: int) -> None:
    rng, cache = random.Random(seed), SchedulerCache(lambda: 0.0)
    cache.add_node(make_node("n").capacity(cpu="64", pods="110").obj())
    pods: list[PodBuilder] = []
    order: list[str] = []
    for number in range(20):
        kind = rng.random()
        if kind < 0.5 or not pods:
            pods.append(a_pod(rng, number))
            order.append(pods[-1].obj().metadata.uid)
            cache.add_pod(cache.pod_info(pods[-1].obj()))
        elif kind < 0.8:
            # What begins to terminate, or gets other labels, comes last: the order decides
            # between equal victims.
            index = rng.randrange(len(pods))
            known = pods[index].obj()
            pods[index] = rng.choice((pods[index].terminating(), pods[index].label(zone="a")))
            if pods[index].obj() != known:
                order.remove(known.metadata.uid)
                order.append(known.metadata.uid)
            cache.update_pod(cache.pod_info(pods[index].obj()))
        else:
            gone = pods.pop(rng.randrange(len(pods))).obj().metadata.uid
            order.remove(gone)
            cache.remove_pod(gone)
        info = published(cache)
        assert everything(info) == recounted(info)
        assert list(info.pods) == order


def test_a_container_that_reports_an_explicit_zero_is_counted_anew() -> None:
    """Equal requests do not imply equal defaults."""
    cache = SchedulerCache(lambda: 0.0)
    cache.add_node(make_node("n").obj())
    pod = cache.pod_info(make_pod("p").node("n").obj())
    cache.add_pod(pod)
    demand = Demand(pod.demand.requests, published(cache).axis)

    cache.update_pod(PodInfo(pod.pod, pod.template, demand, (0, 0)))

    assert published(cache).non_zero_cpu == 0
    cache.remove_pod(pod.uid)
    assert published(cache).non_zero_cpu == 0
