"""From a claim to a bound pod, on the embedded API server.

plugins/dynamicresources: PreEnqueue, Reserve, PreBind, Unreserve, PostFilter, hints.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest

from ksched.api.devices import FINALIZER, MAX_RESERVATIONS
from ksched.api.resources import RESOURCE_CLAIMS
from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.apiserver.status_errors import StatusError
from ksched.devices.allocator import allocate
from ksched.framework import error
from ksched.framework.plugins.dynamic_resources.claim_binder import MAX_CONCURRENT_WRITERS
from ksched.queue.places import Place
from ksched.scheduling.binding_cycle import MAX_CONCURRENT_BINDS
from ksched.testing import Cluster, FakePlugin, PodBuilder, cluster, make_node, make_pod
from ksched.testing.device_builders import (
    DRIVER,
    make_device_class,
    make_resource_claim,
    make_slice,
    with_claim,
)
from ksched.transport import MERGE_PATCH

CLASS = make_device_class()
SLICE = make_slice("n1").device("d1").device("d2")
CLAIM = make_resource_claim("gpu").request()
POD = with_claim(make_pod("web"), "gpu")
NODES = [make_node("n1"), make_node("n2")]


async def claim(c: Cluster, name: str = "gpu") -> Any:
    return msgspec.json.decode(await c.client.get(RESOURCE_CLAIMS, "default", name))


async def patch_claim(c: Cluster, patch: Any, name: str = "gpu", subresource: str = "") -> None:
    body = msgspec.json.encode(patch)
    where = (RESOURCE_CLAIMS, "default", name, body)
    await c.client.patch(*where, subresource=subresource, content_type=MERGE_PATCH)


def writes(c: Cluster) -> list[str]:
    """What the scheduler wrote of claims and pods, without conditions and events."""
    return [
        f"{one.verb} {one.path.partition('/namespaces/default/')[2]}"
        for one in c.requests
        if one.user == "system:kube-scheduler" and one.verb in ("update", "patch", "create", "get")
        if "/namespaces/default/" in one.path and "events" not in one.path
    ]


def claim_writes(c: Cluster) -> list[str]:
    return [one for one in writes(c) if "resourceclaims" in one]


def devices(stored: Any) -> list[str]:
    results = stored["status"].get("allocation", {}).get("devices", {}).get("results", [])
    return [one["device"] for one in results]


# -- it works -----------------------------------------------------------------------------------


async def test_a_claim_gets_a_device_and_the_pod_its_node() -> None:
    odd = CLAIM.config(parameters={"b": 1, "a": [1.50, None]}).label(team="x")
    async with cluster(nodes=NODES) as c:
        await c.create(CLASS, SLICE, odd, POD)
        await c.settle()

        assert c.bound("web") == "n1"
        stored = await claim(c)
        assert devices(stored) == ["d1"]
        assert stored["metadata"]["finalizers"] == [FINALIZER]
        assert stored["metadata"]["labels"] == {"team": "x"}, "fields unknown to ksched are kept"
        assert stored["status"]["allocation"]["allocationTimestamp"]
        config = stored["status"]["allocation"]["devices"]["config"]
        assert config[0]["opaque"]["parameters"] == {"b": 1, "a": [1.50, None]}
        [user] = stored["status"]["reservedFor"]
        assert user == {"resource": "pods", "name": "web", "uid": c.uid("web")}
        written = [one for one in writes(c) if not one.endswith("pods/web/status")]
        assert written == [
            "update resourceclaims/gpu",
            "update resourceclaims/gpu/status",
            "create pods/web/binding",
        ]


@pytest.mark.parametrize("is_extended", [False, True])
async def test_while_claims_are_written_nominations_and_events_wait(is_extended: bool) -> None:
    count = 3 * MAX_CONCURRENT_BINDS
    many = make_slice("n1")
    for number in range(count):
        many = many.device(f"d{number}")
    slow = Rule(Fault(delay_seconds=1.0), user="system:kube-scheduler", times=None)
    slow.when = lambda request: request.method != "GET"
    async with cluster(nodes=[make_node("n1")], faults=Faults([slow])) as c:
        await c.create(make_device_class(extended="example.com/gpu"), many)
        for number in range(count):
            name = f"p{number}"
            if is_extended:
                await c.create(asking(name, 1))
            else:
                await c.create(
                    make_resource_claim(name).request(), with_claim(make_pod(name), name)
                )
        await c.advance(60)

        assert all(c.bound(f"p{number}") for number in range(count))
        asked = [f"{one.verb} {one.path}" for one in c.requests if "kube-scheduler" in one.user]
        binds = [at for at, one in enumerate(asked) if one.endswith("/binding")]
        events = [
            at for at, one in enumerate(asked) if one.startswith("create") and "events" in one
        ]
        patches = [one for one in asked if one.startswith("patch") and one.endswith("/status")]
        assert len(events) == count
        assert sum(at < binds[-1] for at in events) < MAX_CONCURRENT_BINDS
        updates = [one.startswith("update") and "/resourceclaims/" in one for one in asked]
        assert 0 < sum(updates[: binds[0]]) <= 3 * MAX_CONCURRENT_WRITERS < sum(updates)
        assert len(patches) < 2 * MAX_CONCURRENT_BINDS + count * is_extended


async def test_pods_share_a_claim() -> None:
    async with cluster(nodes=NODES) as c:
        await c.create(CLASS, SLICE, CLAIM, POD, with_claim(make_pod("other"), "gpu"))
        await c.settle()
        await c.advance(5)

        assert c.bound("web") == c.bound("other") == "n1"
        stored = await claim(c)
        assert {one["name"] for one in stored["status"]["reservedFor"]} == {"web", "other"}
        assert devices(stored) == ["d1"]


SLOW_STATUS = Rule(
    Fault(delay_seconds=1.0), verb="update", resource="resourceclaims/status", times=None
)


async def test_pods_that_waited_together_for_a_claim_are_one_write() -> None:
    names = [f"p{number}" for number in range(8)]
    async with cluster(nodes=NODES, faults=Faults([SLOW_STATUS])) as c:
        await c.create(CLASS, SLICE, CLAIM, *(with_claim(make_pod(name), "gpu") for name in names))
        await c.advance(30)

        assert {c.bound(name) for name in names} == {"n1"}
        assert claim_writes(c) == [
            "update resourceclaims/gpu",
            # The allocation, all others.
            *["update resourceclaims/gpu/status"] * 2,
        ]


async def test_pods_that_join_a_claim_while_it_is_written_are_one_write() -> None:
    names = [f"p{number}" for number in range(8)]
    async with cluster(nodes=NODES, faults=Faults([SLOW_STATUS])) as c:
        await c.create(CLASS, SLICE, CLAIM, with_claim(make_pod(names[0]), "gpu"))
        await c.advance(5)
        for name in names[1:]:
            await c.create(with_claim(make_pod(name), "gpu"))
            await c.advance(0.1)
        await c.advance(30)

        assert {c.bound(name) for name in names} == {"n1"}
        stored = await claim(c)
        assert {one["name"] for one in stored["status"]["reservedFor"]} == set(names)
        assert claim_writes(c) == [
            "update resourceclaims/gpu",
            # The allocation, the first that joins, all others while that one is written.
            *["update resourceclaims/gpu/status"] * 3,
        ]


async def test_a_pod_that_was_evicted_while_it_joined_a_claim_is_no_user_of_it() -> None:
    node = make_node("n1").capacity(cpu="4", memory="8Gi", pods="10")
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    async with cluster(nodes=[node], faults=Faults([SLOW_STATUS])) as c:
        await c.create({**kind, "metadata": {"name": "high"}, "value": 1000})
        await c.create(CLASS, SLICE, CLAIM, POD)
        await c.advance(5)
        await c.create(with_claim(make_pod("first"), "gpu"))
        await c.advance(0.2)
        victim = make_pod("victim").req(cpu="3")
        await c.create(with_claim(make_pod("other"), "gpu"), with_claim(victim, "gpu"))
        await c.advance(1)
        assert c.bound("first") == "n1", "the write for the two others has begun"
        vip = make_pod("vip").req(cpu="2").merge({"spec": {"priorityClassName": "high"}})
        await c.create(vip)
        await c.advance(0.2)
        assert not c.bound("other"), "the write goes on"
        await c.advance(5)

        assert c.bound("other") == c.bound("vip") == "n1"
        stored = await claim(c)
        users = [one["name"] for one in stored["status"]["reservedFor"]]
        assert users == ["web", "first", "other"]
        assert "patch resourceclaims/gpu/status" in claim_writes(c)


async def test_no_write_reserves_a_claim_for_more_pods_than_it_may_have() -> None:
    others = [f"other-{number}" for number in range(MAX_RESERVATIONS - 2)]
    taken = CLAIM.allocated({"request": "r", "pool": "n1", "device": "d1"}, node="n1")
    names = [f"p{number}" for number in range(4)]
    async with cluster(nodes=NODES, faults=Faults([SLOW_STATUS])) as c:
        await c.create(CLASS, SLICE, CLAIM)
        status = taken.reserved_for(*others).to_dict()["status"]
        await patch_claim(c, {"status": status}, subresource="status")
        await c.create(*(with_claim(make_pod(name), "gpu") for name in names))
        for expected in (2, 3, 4):
            await c.advance(1)
            stored = await claim(c)
            assert len(stored["status"]["reservedFor"]) == len(others) + expected


async def test_no_device_is_given_twice() -> None:
    async with cluster(nodes=NODES) as c:
        await c.create(CLASS, SLICE)
        for name in ("a", "b", "c"):
            await c.create(make_resource_claim(name).request())
            await c.create(with_claim(make_pod(name), name))
        await c.settle()
        await c.advance(1)

        bound = [name for name in ("a", "b", "c") if c.bound(name)]
        assert len(bound) == 2
        given = [device for name in bound for device in devices(await claim(c, name))]
        assert sorted(given) == ["d1", "d2"]
        [waiting] = {"a", "b", "c"} - set(bound)
        assert c.message(waiting) == (
            "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, "
            "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )
        # The device is released as the claim controller does it.
        released = {"status": {"allocation": None, "reservedFor": None}}
        await patch_claim(c, released, bound[0], "status")
        await c.advance(10)
        assert c.bound(waiting)


# -- waiting ------------------------------------------------------------------------------------


async def test_a_pod_is_gated_until_its_claim_is_there() -> None:
    async with cluster(nodes=NODES) as c:
        await c.create(CLASS, SLICE, POD)
        await c.settle()
        assert c.place("web") is Place.GATED
        assert c.condition("web") is None
        await c.create(CLAIM)
        await c.settle()
        assert c.bound("web") == "n1"


async def test_a_pod_is_gated_until_its_claim_is_generated() -> None:
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    pod = make_pod("web").merge({"spec": {"resourceClaims": [entry]}})
    async with cluster(nodes=NODES) as c:
        await c.create(CLASS, SLICE, pod)
        await c.settle()
        assert c.place("web") is Place.GATED
        made = CLAIM.owned_by("web").to_dict()
        made["metadata"]["ownerReferences"][0]["uid"] = c.uid("web")
        await c.create(made)
        statuses = [{"name": "gpu", "resourceClaimName": "gpu"}]
        await c.patch("web", {"status": {"resourceClaimStatuses": statuses}}, subresource="status")
        await c.settle()
        assert c.bound("web") == "n1"


@pytest.mark.parametrize("count", [5, 20])
async def test_gated_pods_cost_nothing_until_their_own_claims_come(count: int) -> None:
    async with cluster(nodes=NODES) as c:
        await c.create(
            *(with_claim(make_pod(f"p{number}"), f"c{number}") for number in range(count))
        )
        await c.settle()
        work = c.scheduler.queue.work
        before = work.pre_enqueue_calls, work.hint_calls
        await c.create(CLASS, SLICE, make_node("n3"), make_resource_claim("other").request())
        await c.settle()
        assert (work.pre_enqueue_calls, work.hint_calls) == before
        await c.create(make_resource_claim("c3").request())
        await c.settle()
        assert work.pre_enqueue_calls <= before[0] + 3, "the plugins of one pod"
        assert c.bound("p3") == "n1"


async def test_no_claim_is_needed() -> None:
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    pod = make_pod("web").merge({"spec": {"resourceClaims": [entry]}})
    async with cluster(nodes=NODES) as c:
        await c.create(pod)
        await c.settle()
        statuses = [{"name": "gpu"}]
        await c.patch("web", {"status": {"resourceClaimStatuses": statuses}}, subresource="status")
        await c.settle()
        assert c.bound("web")
        assert claim_writes(c) == []


async def test_a_missing_class_and_a_missing_slice_are_waited_for() -> None:
    async with cluster(nodes=NODES) as c:
        await c.create(CLAIM, POD)
        await c.settle()
        text = f"0/2 nodes are available: request r: device class {DRIVER} does not exist."
        assert c.message("web").startswith(f"{text} no new claims to deallocate, preemption: ")
        await c.create(CLASS)
        await c.advance(15)
        assert c.message("web").startswith("0/2 nodes are available: 2 cannot allocate all claims")
        await c.create(SLICE)
        await c.advance(15)
        assert c.bound("web") == "n1"


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each search for devices."""
    found: list[int] = []

    def counting(*args: Any) -> Any:
        found.append(1)
        return allocate(*args)

    monkeypatch.setattr(
        "ksched.framework.plugins.dynamic_resources.verdicts_by_view.allocate", counting
    )
    return found


async def test_pods_that_fit_nowhere_cost_nothing_until_a_slice_a_claim_or_a_node_changes(
    searches: list[int],
) -> None:
    async with cluster(nodes=20) as c:
        work = c.scheduler.profiles["default-scheduler"].pipeline.work

        async def attempts_after(*changes: Awaitable[object]) -> int:
            before = work.cycles
            for change in changes:
                await change
                await c.advance(5)
            return work.cycles - before

        hopeless = [f"web-{number}" for number in range(10)]
        idle = make_resource_claim("idle").request()
        taken = idle.allocated({"request": "r", "pool": "n1", "device": "d1"}, node="n1")
        await c.create(CLASS, SLICE, idle)
        await patch_claim(c, {"status": taken.to_dict()["status"]}, "idle", "status")
        for name in hopeless:
            await c.create(make_resource_claim(name).request(count=3))
            await c.create(with_claim(make_pod(name), name))
        await c.advance(5)
        assert 0 < len(searches) <= 2, "nodes that look alike are looked at once, for all pods"

        searches.clear()
        labels = {"metadata": {"labels": {"a": "b"}}}
        assert await attempts_after(patch_claim(c, labels, "idle")) == 0
        assert await attempts_after(patch_claim(c, labels, hopeless[0])) == 0
        assert await attempts_after(c.create(make_pod("plain"))) == 1
        assert await attempts_after(c.delete("plain")) == 0
        assert not searches

        more = make_slice("n3", pool="more").device("d")
        freed = patch_claim(c, {"status": {"allocation": None}}, "idle", "status")
        for change in (c.create(more), c.create(make_node("n99")), freed):
            assert await attempts_after(change) == len(hopeless)
        assert 0 < len(searches) <= 2, "only devices that changed are looked at again"
        assert not any(c.bound(name) for name in hopeless)


# -- what goes wrong ----------------------------------------------------------------------------


CONFLICT = StatusError(409, "Conflict", "the object has been modified")


@pytest.mark.parametrize("resource", ["resourceclaims", "resourceclaims/status"])
async def test_a_conflict_is_tried_again_on_the_newest_version(resource: str) -> None:
    faults = Faults([Rule(Fault(answer=CONFLICT), "update", resource)])
    async with cluster(nodes=NODES, faults=faults) as c:
        await c.create(CLASS, SLICE, CLAIM, POD)
        await c.advance(1)
        assert c.bound("web") == "n1"
        assert "get resourceclaims/gpu" in claim_writes(c)
        assert devices(await claim(c)) == ["d1"]


async def test_a_failed_bind_takes_the_reservation_back_and_leaves_the_allocation() -> None:
    async with cluster(nodes=NODES, plugins=[FakePlugin("Late", pre_bind=error("no luck"))]) as c:
        await c.create(CLASS, SLICE, CLAIM, POD)
        await c.settle()
        stored = await claim(c)
        assert c.bound("web") is None
        assert devices(stored) == ["d1"]
        assert not stored["status"].get("reservedFor")


# -- PostFilter ---------------------------------------------------------------------------------


async def test_devices_that_nobody_uses_are_taken_back_from_a_node_that_does_not_fit() -> None:
    taken = CLAIM.allocated({"request": "r", "pool": "n1", "device": "d1"}, node="n1")
    async with cluster(nodes=NODES) as c:
        await c.create(CLASS, SLICE, make_slice("n2").device("d1"))
        stored = await c.create(CLAIM)
        await patch_claim(c, {"status": taken.to_dict()["status"]}, subresource="status")
        assert stored
        await c.create(POD.merge({"spec": {"nodeSelector": {"kubernetes.io/hostname": "n2"}}}))
        await c.settle()
        await c.advance(15)
        notes = [one.note for one in c.events("web")]
        assert any("deallocation of ResourceClaim completed, preemption: " in one for one in notes)
        assert c.bound("web") == "n2"


# -- extended resources -------------------------------------------------------------------------


def asking(name: str, count: int) -> PodBuilder:
    resources = {"requests": {"example.com/gpu": count}, "limits": {"example.com/gpu": count}}
    [container] = make_pod(name).to_dict()["spec"]["containers"]
    return make_pod(name).merge({"spec": {"containers": [{**container, "resources": resources}]}})


async def test_an_extended_resource_is_satisfied_by_devices() -> None:
    gpu = make_device_class(DRIVER, extended="example.com/gpu")
    async with cluster(nodes=NODES) as c:
        await c.create(gpu, SLICE)
        await c.settle()
        await c.create(asking("web", 2))
        await c.settle()

        assert c.bound("web") == "n1"
        status = c.pod("web")["status"]["extendedResourceClaimStatus"]
        name = status["resourceClaimName"]
        written = [one for one in writes(c) if one != "patch pods/web/status"]
        assert written == [
            "create resourceclaims",
            f"update resourceclaims/{name}/status",
            "create pods/web/binding",
        ]
        [mapping] = status["requestMappings"]
        assert mapping == {
            "containerName": "c0",
            "resourceName": "example.com/gpu",
            "requestName": "container-0-request-0",
        }
        stored = await claim(c, name)
        assert devices(stored) == ["d1", "d2"]
        assert stored["metadata"]["finalizers"] == [FINALIZER]
        assert stored["metadata"]["generateName"] == "web-extended-resources-"
        # No device is left.
        await c.create(asking("late", 1))
        await c.settle()
        assert c.message("late").startswith("0/2 nodes are available: 2 cannot allocate all claims")


# -- binding conditions -------------------------------------------------------------------------


@pytest.mark.parametrize("is_ready", [True, False])
async def test_devices_are_waited_for(is_ready: bool) -> None:
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    async with cluster(nodes=NODES) as c:
        await c.create(CLASS, make_slice("n1").device("d1", fields=conditions), CLAIM, POD)
        await c.settle()
        assert c.bound("web") is None
        assert any(one.reason == "BindingConditionsPending" for one in c.events("web"))
        kind = "ready" if is_ready else "broken"
        true = {"type": kind, "status": "True", "reason": "x", "message": 'a "y"'}
        status = {"driver": DRIVER, "pool": "n1", "device": "d1", "conditions": [true]}
        await patch_claim(c, {"status": {"devices": [status]}}, subresource="status")
        await c.advance(1)
        if is_ready:
            assert c.bound("web") == "n1"
        else:
            text = 'device binding failed: claim=gpu, reason=x, message="a \\"y\\""'
            assert c.message("web") == f'running PreBind plugin "DynamicResources": {text}'


async def test_devices_that_are_never_ready_are_given_up() -> None:
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    async with cluster(nodes=NODES) as c:
        await c.create(CLASS, make_slice("n1").device("d1", fields=conditions), CLAIM, POD)
        await c.advance(700)
        assert c.bound("web") is None
        messages = [one.note for one in c.events("web")]
        assert any("device binding timeout: " in one for one in messages)
