"""How many copies of a pod fit, against brute force."""

from __future__ import annotations

import pytest

from ksched.errors import KschedError
from ksched.testing import cluster, make_node, make_pod
from ksched.what_if.changes import Changes
from ksched.what_if.counting import count_copies
from ksched.what_if.new_pods import NewPods
from ksched.what_if.predicting import predict
from lab.what_if_clusters import copied, random_source

GIB = 2**30


async def capacity_of(c, pod, changes=None):
    prediction = await predict(await copied(c), changes or Changes(), more_of=pod)
    return prediction.capacity


@pytest.mark.parametrize("seed", range(20))
async def test_as_many_fit_as_can_be_divided(seed):
    """Without constraints the order does not matter: each node takes what its amounts allow."""
    random = random_source(seed).random
    cpu, memory = random.choice((100, 333, 1000)), random.choice((1, 2, 3))
    nodes, expected, short = [], {}, {"Insufficient cpu": 0, "Insufficient memory": 0}
    short["Too many pods"] = 0
    async with cluster(start=False) as c:
        for number in range(random.randint(1, 8)):
            name, cores, gibs = f"n{number}", random.randint(1, 8), random.randint(1, 16)
            slots = random.choice((3, 110))
            nodes.append(make_node(name).capacity(cpu=cores, memory=f"{gibs}Gi", pods=slots))
            used = random.randint(0, cores * 1000), random.randint(0, gibs)
            running = make_pod(f"r{number}").node(name)
            await c.create(nodes[-1], running.req(cpu=f"{used[0]}m", memory=f"{used[1]}Gi"))
            by_cpu, by_memory = (cores * 1000 - used[0]) // cpu, (gibs - used[1]) // memory
            fits = min(by_cpu, by_memory, slots - 1)
            if fits:
                expected[name] = fits
                short["Insufficient cpu"] += by_cpu == fits
                short["Insufficient memory"] += by_memory == fits
                short["Too many pods"] += slots - 1 == fits
        pod = make_pod("one").req(cpu=f"{cpu}m", memory=f"{memory}Gi").obj()
        capacity = await capacity_of(c, pod)
    assert capacity.by_node == expected
    assert capacity.fits == sum(expected.values())
    assert {one.reason: len(one.nodes) for one in capacity.runs_out} == {
        reason: number for reason, number in short.items() if number
    }
    assert len({name for one in capacity.never for name in one.nodes}) == len(nodes) - len(expected)


@pytest.mark.parametrize("seed", range(12))
async def test_as_many_fit_as_a_scheduler_places(seed):
    """Random pods of any kind; the same choices among equals, since the seeds are the same."""
    source = random_source(seed)
    async with cluster() as c:
        names = [f"n{number}" for number in range(source.random.randint(2, 5))]
        await c.create(*source.cluster(names))
        for number in range(source.random.randint(0, 8)):
            await c.create(source.running_pod(f"r{number}", names))
        manifest = source.pod("one")
        requests = manifest["spec"]["containers"][0].setdefault("resources", {})
        requests.setdefault("requests", {})["cpu"] = "1"
        (created,) = await c.create(
            {**manifest, "spec": {**manifest["spec"], "schedulingGates": [{"name": "x"}]}}
        )
        namespace = created["metadata"]["namespace"]
        copy = await copied(c)
        pod = await copy.read_pod(namespace, "one")
        capacity = await count_copies(copy, NewPods(copy.listers, c.clock), pod)
        placed = 0
        while True:
            metadata = {**manifest["metadata"], "name": f"one-{placed}"}
            await c.create({**manifest, "metadata": metadata})
            await c.settle()
            if c.bound(f"{namespace}/one-{placed}") is None:
                break
            placed += 1
        message = c.message(f"{namespace}/one-{placed}")
    assert (capacity.fits, capacity.is_complete) == (placed, True)
    assert capacity.message == message


async def test_counting_stops_somewhere_and_leaves_nothing_behind():
    async with cluster(2) as c:
        copy = await copied(c)
        pods = NewPods(copy.listers, c.clock)
        capacity = await count_copies(copy, pods, make_pod("tiny").obj(), at_most=7)
        assert copy.cache.pods() == []
    assert (capacity.fits, capacity.is_complete, capacity.message) == (7, False, "")


async def test_a_pod_of_another_scheduler_is_counted_with_the_only_profile():
    async with cluster([make_node("n1").capacity(cpu="2")]) as c:
        pod = make_pod("one").req(cpu="1").scheduler("volcano").gate("quota").obj()
        assert (await capacity_of(c, pod)).fits == 2


async def test_a_pod_with_claims_cannot_be_counted():
    claims = {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}}
    async with cluster(1) as c:
        with pytest.raises(KschedError, match="pod default/one uses resource claims"):
            await capacity_of(c, make_pod("one").merge(claims).obj())


async def test_copies_are_counted_after_the_changes():
    nodes = [make_node(f"n{number}").capacity(cpu="4") for number in (1, 2)]
    async with cluster(nodes, start=False) as c:
        await c.create(make_pod("web").req(cpu="1").node("n1").owner("ReplicaSet", "web"))
        capacity = await capacity_of(c, make_pod("one").req(cpu="1").obj(), Changes(drain=("n1",)))
    assert capacity.by_node == {"n2": 3}
    assert [one.reason for one in capacity.never] == ["node(s) were unschedulable"]
