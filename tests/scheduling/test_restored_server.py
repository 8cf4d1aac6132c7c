"""An API server whose data was restored from an older copy, on virtual time.

What happened since the copy never happened: bindings, deletions, writes of volumes and conditions.
Meanwhile the counter of versions runs again through numbers that were used before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ksched.apiserver.faults import Fault, Rule, StreamEnd
from ksched.apiserver.object_store import StoreCopy
from ksched.apiserver.request import Request
from ksched.daemon.inspection import compare_with_api_server
from ksched.framework import unschedulable
from ksched.testing import Checkers, Cluster, FakePlugin, cluster, make_node, make_pod
from ksched.testing.storage_builders import make_claim, make_storage_class, make_volume

NOTICED_SECONDS = 5.0


@pytest.fixture(params=["at once", "when it has passed what was known"])
def overtakes(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the new history is as long as the old one before the scheduler comes back."""
    return request.param != "at once"


async def restore(c: Cluster, copy: StoreCopy, *, overtakes: bool = False) -> None:
    """Restore a copy behind the scheduler's back; open watches break."""
    known = c.server.store.version
    c.server.store.restore(copy)
    while overtakes and c.server.store.version <= known + 5:
        annotations = {"beat": str(c.server.store.version)}
        await c.patch_node("n1", {"metadata": {"annotations": annotations}})


def copied_when(c: Cluster, verb: str, resource: str) -> list[StoreCopy]:
    """A list that will hold the copy made right before the scheduler's first such request."""
    copies: list[StoreCopy] = []

    def is_first(request: Request) -> bool:
        if not copies:
            copies.append(c.server.store.copy())
        return False

    c.faults.rules.append(Rule(Fault(), verb=verb, resource=resource, when=is_first))
    return copies


async def deafen(c: Cluster, events: int, resource: str = "pods") -> None:
    """Let a watch fall silent after so many more events."""
    fault = Fault(stream_end=StreamEnd.SILENT, stream_events=events)
    c.faults.rules.append(Rule(fault, verb="watch", resource=resource))
    c.server.drop_watches()
    await c.advance(10)


async def check(c: Cluster) -> None:
    Checkers(c).check_books()
    assert not await compare_with_api_server(c.scheduler)


async def test_pods_bound_since_the_copy_are_bound_again(overtakes: bool) -> None:
    async with cluster(nodes=10) as c:
        names = [f"p{number}" for number in range(40)]
        slow = Rule(Fault(delay_seconds=1), verb="create", resource="pods/binding", times=40)
        c.faults.rules.append(slow)
        await c.create(*(make_pod(name).req(cpu="1") for name in names))
        copy = c.server.store.copy()
        await c.advance(3)
        assert all(map(c.bound, names))
        await restore(c, copy, overtakes=overtakes)
        assert not any(map(c.bound, names))
        await c.advance(NOTICED_SECONDS)
        assert all(map(c.bound, names))
        await check(c)


async def test_a_server_that_waits_in_silence_for_the_old_version_is_noticed() -> None:
    async with cluster(nodes=1) as c:

        def is_from_the_future(request: Request) -> bool:
            version = request.path.partition("resourceVersion=")[2].partition("&")[0]
            return version.isdecimal() and int(version) > c.server.store.version

        copies = copied_when(c, "create", "pods/binding")
        await c.create(make_pod("web"))
        await c.settle()
        rule = Rule(Fault(hang=True), verb="watch", when=is_from_the_future, times=None)
        c.faults.rules.append(rule)
        await restore(c, copies[0])
        await c.advance(NOTICED_SECONDS)
        assert c.bound("web")


async def test_an_assumed_pod_whose_binding_was_lost_is_bound_again(overtakes: bool) -> None:
    """The watch never showed it bound, and shows it as it was known before."""
    async with cluster(nodes=1) as c:
        copies = copied_when(c, "create", "pods/binding")
        await deafen(c, 1)
        await c.create(make_pod("web").req(cpu="3"))
        await c.settle()
        assert c.bound("web")
        assert c.scheduler.cache.is_assumed(c.uid("web"))
        await restore(c, copies[0], overtakes=overtakes)
        c.scheduler.watches.relist()
        await c.advance(NOTICED_SECONDS)
        assert c.bound("web")
        await check(c)


async def test_victims_that_live_again_are_chosen_again() -> None:
    async with cluster(nodes=[make_node("n1").capacity(cpu="1")]) as c:
        for name, value in {"low": 1, "high": 1000}.items():
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            await c.create({**kind, "metadata": {"name": name}, "value": value})
        low = {"spec": {"priorityClassName": "low", "terminationGracePeriodSeconds": 0}}
        await c.create(make_pod("low").req(cpu="1").merge(low))
        await c.settle()
        copies = copied_when(c, "delete", "pods")
        await deafen(c, 1)
        high = {"spec": {"priorityClassName": "high"}}
        await c.create(make_pod("high").req(cpu="1").merge(high))
        await c.settle()
        assert not c.exists("low")
        await restore(c, copies[0])
        assert c.exists("low")
        c.scheduler.watches.relist()
        await c.advance(30)
        assert (c.exists("low"), c.bound("high")) == (False, "n1")
        await check(c)


async def test_deleted_pods_that_are_back_count_again(overtakes: bool) -> None:
    async with cluster(nodes=1) as c:
        await c.create(make_pod("big").req(cpu="3"), make_pod("pending").req(cpu="2"))
        await c.settle()
        copy = c.server.store.copy()
        pending = "big" if not c.bound("big") else "pending"
        for name in ("big", "pending"):
            await c.delete(name, grace_seconds=0)
        await c.create(make_pod("other").req(cpu="4"))
        await c.settle()
        assert c.bound("other")
        await restore(c, copy, overtakes=overtakes)
        await c.advance(NOTICED_SECONDS)
        assert c.bound(pending) is None
        assert not c.exists("other")
        await check(c)


async def test_a_pod_made_anew_under_its_name_is_the_old_one_again(overtakes: bool) -> None:
    async with cluster(nodes=2) as c:
        (old,) = await c.create(make_pod("web"))
        await c.settle()
        copy, node = c.server.store.copy(), c.bound("web")
        await c.delete("web", grace_seconds=0)
        await c.create(make_pod("web"))
        await c.settle()
        await restore(c, copy, overtakes=overtakes)
        await c.advance(NOTICED_SECONDS)
        (known,) = c.scheduler.cache.pods()
        assert (known.uid, known.node_name) == (old["metadata"]["uid"], node)
        await check(c)


async def test_nodes_are_those_of_the_copy(overtakes: bool) -> None:
    async with cluster(nodes=2) as c:
        await c.settle()
        copy = c.server.store.copy()
        await c.delete_node("n2")
        await c.add_nodes([make_node("n3")])
        await c.create(make_pod("web").node_selector({"kubernetes.io/hostname": "n3"}))
        await c.settle()
        await restore(c, copy, overtakes=overtakes)
        await c.advance(NOTICED_SECONDS)
        assert sorted(c.scheduler.cache.node_names()) == ["n1", "n2"]
        await check(c)


@pytest.mark.parametrize("unseen", [False, True])
async def test_volumes_promised_since_the_copy_are_bound_again(
    overtakes: bool, unseen: bool
) -> None:
    async with cluster(nodes=2) as c, c.volume_controller():
        await c.create(
            make_storage_class("static", "kubernetes.io/no-provisioner"),
            make_claim("data", "static", "5Gi"),
            make_volume("disk", "6Gi", "static").on_node("n2"),
        )
        await c.settle()
        copies = copied_when(c, "update", "persistentvolumes")
        if unseen:
            await deafen(c, 0, "persistentvolumes")
        await c.create(make_pod("web").pvc("data"))
        await c.settle()
        assert bool(c.bound("web")) == (not unseen)
        await restore(c, copies[0], overtakes=overtakes)
        await c.advance(30)
        assert c.bound("web") == "n2"
        await check(c)


async def test_a_condition_that_was_lost_is_told_again() -> None:
    never = FakePlugin("Never", filter=unschedulable("not today"))
    async with cluster(nodes=1, plugins=[never]) as c:
        copies = copied_when(c, "patch", "pods/status")
        await c.create(make_pod("web"))
        await c.settle()
        assert "not today" in c.message("web")
        await restore(c, copies[0])
        assert c.message("web") == ""
        await c.advance(NOTICED_SECONDS)
        await c.patch_node("n1", {"metadata": {"labels": {"a": "b"}}})
        await c.advance(100)
        assert "not today" in c.message("web")


@pytest.mark.parametrize("seed", [*range(8), 175, 192])
async def test_whatever_happened_the_truth_is_known_again(seed: int) -> None:
    """Random changes, copies and restorations, under watches that break or lag at random."""
    rng = random.Random(seed)
    async with cluster(nodes=6, seed=seed) as c:
        c.faults.rules += [
            Rule(Fault(event_delay_seconds=0.5), verb="watch", chance=0.2, times=None),
            Rule(Fault(delay_seconds=0.7), resource="pods/binding", chance=0.2, times=None),
            Rule(Fault(lose_response=True), resource="pods/binding", chance=0.1, times=None),
        ]
        copy, created = c.server.store.copy(), 0
        for _ in range(120):
            step = rng.random()
            if step < 0.5:
                created += 1
                await c.create(make_pod(f"p{created}").req(cpu="100m"))
            elif step < 0.65 and c.pod_names():
                await c.delete(rng.choice(c.pod_names()), grace_seconds=0)
            elif step < 0.8:
                label = {"metadata": {"labels": {"beat": str(created)}}}
                await c.patch_node("n1", label)
            elif step < 0.87:
                copy = c.server.store.copy()
            elif step < 0.93:
                await restore(c, copy, overtakes=rng.random() < 0.5)
            await c.advance(rng.choice([0, 0, 0.3, 2]))
        c.faults.rules.clear()
        await c.advance(60)
        assert all(c.bound(name) for name in c.pod_names())
        await check(c)


async def test_a_quiet_outage_costs_no_list() -> None:
    async with cluster(nodes=2) as c:
        await c.create(make_pod("web"))
        await c.settle()
        seen = len(c.requests)
        for _ in range(5):
            await c.advance(60)
            c.server.drop_watches()
        await c.advance(60)
        lists = [one for one in list(c.requests)[seen:] if one.verb == "list"]
        assert lists
        assert all("resourceVersionMatch=Exact" in one.path for one in lists)
