"""Smallest changes: each makes the pod fit, and no smaller set of the offered steps does.

Covers ``ksched.explain.steps`` too.
"""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from ksched.apiserver.in_process import InProcessTransport
from ksched.client.rest import ApiClient
from ksched.clock import LoopClock
from ksched.configuration.model import SchedulerConfiguration
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.explaining import explain
from ksched.explain.read_only import ReadOnlyTransport
from ksched.explain.smallest_change import (
    EVICTION,
    NODE,
    POD,
    applied,
    listed,
    smallest_changes,
    steps_by_kind,
)
from ksched.explain.steps import Case
from ksched.testing import cluster, make_node, make_pod
from lab.parity.manifests import RandomManifests


async def read(c):
    client = ApiClient(ReadOnlyTransport(InProcessTransport(c.server, "reader")), c.clock)
    copy = ClusterCopy(client, SchedulerConfiguration(), c.clock)
    await copy.read()
    return copy


async def changes_of(copy, pod):
    (profile,) = copy.profiles.values()
    return await smallest_changes(copy, profile, pod, sorted(copy.cache.node_names()))


async def fits_afresh(copy, case):
    """Whether the pod fits on a new copy of the changed cluster, judged with all its nodes."""
    other = ClusterCopy(copy.client, SchedulerConfiguration(), LoopClock())
    for kind, lister in other.listers.required().items():
        for obj in copy.listers.required()[kind]:
            lister.put(obj)
    infos = [copy.cache.get_node(name) for name in copy.cache.node_names()]
    name = case.node.metadata.name
    gone = {pod.uid for pod in case.evicted}
    other.put(
        [case.node if info.name == name else info.node for info in infos],
        [pod.pod for pod in copy.cache.pods() if pod.uid not in gone],
    )
    explanation = await explain(other, case.pod)
    return name in [one.node for one in explanation.feasible]


@pytest.mark.parametrize("seed", range(6))
async def test_every_change_makes_the_pod_fit_and_none_is_smaller(seed):
    random = Random(seed)
    source = RandomManifests(random)
    async with cluster() as c:
        names = [f"n{number}" for number in range(random.randint(1, 4))]
        await c.create(*source.cluster(names))
        for number in range(8):
            await c.create(source.running_pod(f"r{number}", names))
        for number in range(4):
            await c.create(source.pod(f"p{number}"))
        await c.settle()
        copy = await read(c)
        for pending in list(copy.pending):
            for found in await changes_of(copy, pending.pod):
                assert await fits_afresh(copy, found.case), found
                info = copy.cache.get_node(found.node)
                case = Case(pending.pod, info.node)
                steps = steps_by_kind(pending.pod, info)[found.kind]
                for size in range(len(found.steps)):
                    for fewer in combinations(steps, size):
                        assert not await fits_afresh(copy, applied(case, fewer)), (found, fewer)


def texts(found):
    return {(one.node, one.kind): [step.text for step in one.steps] for one in found}


async def test_each_objection_has_its_step():
    nodes = [
        make_node("full").capacity(cpu="2"),
        make_node("tainted").capacity(cpu="8").taint("team", "red"),
        make_node("cordoned").capacity(cpu="8").unschedulable(),
        make_node("other").capacity(cpu="8").label(disk="hdd"),
    ]
    async with cluster(nodes, start=False) as c:
        await c.create(make_pod("db").req(cpu="1500m").node("full"))
        await c.create(make_pod("web").req(cpu="1").node_selector(disk="ssd"))
        for name in ("full", "tainted", "cordoned"):
            await c.patch_node(name, {"metadata": {"labels": {"disk": "ssd"}}})
        copy = await read(c)
        (pod,) = copy.pending
        found = await changes_of(copy, pod.pod)
    assert texts(found) == {
        ("full", POD): ["request 500m cpu less (500m instead of 1)"],
        ("full", NODE): ["500m more cpu"],
        ("full", EVICTION): ["evict default/db"],
        ("tainted", POD): ["tolerate team=red:NoSchedule"],
        ("tainted", NODE): ["remove taint team=red:NoSchedule"],
        ("cordoned", POD): ["tolerate node.kubernetes.io/unschedulable:NoSchedule"],
        ("cordoned", NODE): ["uncordon it"],
        ("other", POD): ["remove nodeSelector disk=ssd"],
        ("other", NODE): ["label it disk=ssd"],
    }


async def test_many_pods_are_reprieved_one_by_one_and_it_is_said():
    async with cluster([make_node("n1").capacity(cpu="60", pods=200)], start=False) as c:
        await c.create(*(make_pod(f"p{n:02}").req(cpu="1").node("n1") for n in range(60)))
        await c.create(make_pod("big").req(cpu="10"))
        copy = await read(c)
        (pod,) = copy.pending
        found = {one.kind: one for one in await changes_of(copy, pod.pod)}
        assert await fits_afresh(copy, found[EVICTION].case)
    assert (len(found[EVICTION].steps), found[EVICTION].is_smallest) == (10, False)


async def test_nodes_that_the_same_steps_help_are_one_change():
    nodes = [make_node(f"n{number}").capacity(cpu="1") for number in range(3)]
    async with cluster(nodes, start=False) as c:
        await c.create(make_pod("big").req(cpu="2"))
        copy = await read(c)
        (pod,) = copy.pending
        changes = listed(await changes_of(copy, pod.pod), 2)
    assert [(one.kind, one.nodes) for one in changes] == [
        (POD, ["n0", "n1", "n2"]),
        (NODE, ["n0", "n1", "n2"]),
    ]


async def test_the_cluster_is_the_same_afterwards():
    async with cluster([make_node("n1").capacity(cpu="1")], start=False) as c:
        await c.create(make_pod("low").req(cpu="1").node("n1"), make_pod("big").req(cpu="1"))
        copy = await read(c)
        (pod,) = copy.pending
        before = await explain(copy, pod.pod)
        await changes_of(copy, pod.pod)
        assert await explain(copy, pod.pod) == before


async def test_the_search_ends_with_its_time_and_it_is_said():
    async with cluster([make_node("n1").capacity(cpu="2")]) as c:
        await c.create(make_pod("large").req(cpu="3"))
        await c.settle()
        copy = await read(c)
        pod = await copy.read_pod("default", "large")
        assert (await explain(copy, pod)).changes
        found = await explain(copy, pod, seconds=0.0)
    assert found.changes == []
    assert found.message.startswith("0/1 nodes are available")
    assert found.notes == ["changes were sought for 0 s, not on all nodes"]
