"""The checkers notice what they are there to notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ksched.apiserver import served_resources as resources
from ksched.testing import Checkers, PermitGate, cluster, make_node, make_pod
from ksched.testing.harness import Cluster
from lab.reference import would_take

ELSEWHERE = make_pod("stray").scheduler("somebody-else")


def complains(check: Callable[[], None], complaint: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check()
    assert complaint in str(caught.value)


def rewrite(c: Cluster, pod: str, node_name: str) -> None:
    """Change a pod behind everybody's back."""
    store = c.server.store
    entry = store.collection(resources.PODS).entries[f"default/{pod}"]
    data = entry.decode()
    data["spec"]["nodeName"] = node_name
    store.replace(resources.PODS, entry, data)


async def test_a_healthy_cluster_passes() -> None:
    gate = PermitGate()
    async with cluster(nodes=2, plugins=[gate]) as c:
        checkers = Checkers(c, would_take=would_take)
        await c.create(make_pod("a").req(cpu="1"), make_pod("b"), make_pod("big").req(cpu="100"))
        await c.settle()
        gate.allow("default/a")
        await c.settle()
        # One pod bound, one held at Permit, one waiting for a node.
        checkers.check()
        checkers.check_books()
        assert checkers.ledger.binds == 1


async def test_pods_that_were_there_before_are_counted() -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_pod("a").req(cpu="3"))
        await c.settle()
        checkers = Checkers(c, would_take=would_take)
        checkers.check_books()
        assert checkers.ledger.used["n1"]["cpu"] == 3000


@pytest.mark.parametrize(
    ("pod", "resource"),
    [
        pytest.param(ELSEWHERE.req(cpu="2"), "4500 of 4000 cpu", id="cpu"),
        pytest.param(ELSEWHERE.req(memory="40Gi"), "of 34359738368 memory", id="memory"),
    ],
)
async def test_an_overfull_node_is_noticed_even_if_it_lasts_an_instant(
    pod: object, resource: str
) -> None:
    async with cluster(nodes=1) as c:
        checkers = Checkers(c, would_take=would_take)
        await c.create(make_pod("a").req(cpu="2500m"), pod)  # type: ignore[arg-type]
        await c.settle()
        await c.bind("stray", "n1")
        await c.delete("stray", grace_seconds=0)
        await c.settle()
        complains(checkers.check_books, resource)


async def test_too_many_pods_on_a_node_are_noticed() -> None:
    async with cluster(nodes=[make_node("n1").capacity(pods="1")]) as c:
        checkers = Checkers(c, would_take=would_take)
        await c.create(make_pod("a"), ELSEWHERE)
        await c.settle()
        await c.bind("stray", "n1")
        complains(checkers.check_books, "2 of 1 pods in use")


async def test_a_pod_bound_twice_is_noticed() -> None:
    async with cluster(nodes=1, start=False) as c:
        checkers = Checkers(c, would_take=would_take)
        await c.create(make_pod("a"))
        await c.bind("a", "n1")
        rewrite(c, "a", "n2")
        complains(checkers.check_books, "default/a: bound twice, to n1 and then to n2")


async def test_a_cache_that_disagrees_is_noticed() -> None:
    async with cluster(nodes=2) as c:
        checkers = Checkers(c, would_take=would_take)
        await c.create(make_pod("a").req(cpu="1"))
        await c.settle()
        uid = c.uid("a")
        forgotten = c.scheduler.cache.remove_pod(uid)
        assert forgotten is not None
        complains(checkers.check_books, f"{uid}: is on {c.bound('a')}, the cache says no node")
        complains(checkers.check_books, f"{c.bound('a')}: 1000 cpu in use, the cache says 0")
        c.scheduler.cache.add_pod(forgotten)
        checkers.check_books()
        ghost = c.scheduler.cache.pod_info(make_pod("ghost").obj()).on_node("n1")
        c.scheduler.cache.assume_pod(ghost)
        complains(checkers.check_books, f"{ghost.uid}: is on no node, the cache says n1")


async def test_a_lost_pod_is_noticed() -> None:
    async with cluster(nodes=1) as c:
        checkers = Checkers(c, would_take=would_take)
        await c.create(make_pod("big").req(cpu="100"))
        await c.settle()
        c.scheduler.queue.delete(c.uid("big"))
        complains(checkers.check_books, "default/big: is pending and in no queue")


async def test_a_pod_that_is_queued_though_it_is_gone_is_noticed() -> None:
    async with cluster(start=False) as c:
        checkers = Checkers(c, would_take=would_take)
        c.scheduler.queue.add(c.scheduler.cache.pod_info(make_pod("ghost").obj()))
        complains(checkers.check_books, "default/ghost: is active but not pending")


async def test_a_pod_left_behind_is_noticed_when_the_patience_is_over() -> None:
    async with cluster(nodes=1, start=False) as c:
        checkers = Checkers(c, 100, would_take)
        await c.create(make_pod("a"), make_pod("big").req(cpu="100"), make_pod("g").gate("x"))
        assert list(checkers.left_behind()) == ["default/a: waits although a node would take it"]
        for _ in range(2):
            checkers.check()
            await c.advance(51)
        complaint = "default/a: waits although a node would take it (since 0)"
        complains(checkers.check, complaint)


@pytest.mark.parametrize("cpu", ["1", "3"])
async def test_a_wait_starts_over_when_another_pod_took_the_room(cpu: str) -> None:
    async with cluster(nodes=1, start=False) as c:
        checkers = Checkers(c, 100, would_take)
        await c.create(make_pod("a").req(cpu="2"), ELSEWHERE.req(cpu=cpu))
        checkers.check()
        await c.advance(60)
        await c.bind("stray", "n1")
        await c.delete("stray", grace_seconds=0)
        await c.advance(60)
        # Nothing runs, so that it is in no queue either.
        with pytest.raises(AssertionError) as caught:
            checkers.check()
        assert ("waits although" in str(caught.value)) == (cpu == "1")


async def test_a_pod_that_is_excused_may_overfill_its_node() -> None:
    async with cluster(nodes=1, start=False) as c:
        checkers = Checkers(c, would_take=would_take)
        await c.create(make_pod("a").req(cpu="3"), make_pod("b").req(cpu="3"))
        await c.bind("a", "n1")
        checkers.ledger.excuse("default/b")
        await c.bind("b", "n1")
        assert checkers.ledger.problems == []
        await c.create(make_pod("c").req(cpu="2"))
        await c.bind("c", "n1")
        assert ["default/c: bound to n1" in one for one in checkers.ledger.problems] == [True]
