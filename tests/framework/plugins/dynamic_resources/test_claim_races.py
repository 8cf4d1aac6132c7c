"""Claims whose stored state is not what an attempt to bind was made for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from ksched.api.decoding import decoder_of
from ksched.api.devices import MAX_RESERVATIONS, ResourceClaim
from ksched.api.resources import NODES, RESOURCE_CLAIMS
from ksched.api.watched_kinds import watched_kind
from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.devices.claim_store import ClaimStore
from ksched.errors import ApiError, Conflict
from ksched.framework import SUCCESS, Handle, PluginTasks, Status
from ksched.framework.plugins.dynamic_resources.attempt import Attempt
from ksched.framework.plugins.dynamic_resources.claim_binder import ClaimBinder, _Turn
from ksched.framework.plugins.dynamic_resources.claim_writer import ClaimWriter
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.device_builders import (
    make_device_class,
    make_resource_claim,
    make_slice,
    with_claim,
)
from ksched.testing.virtual_time import VirtualClock
from ksched.transport import MERGE_PATCH

TIMEOUT_SECONDS = 600
USER = "system:kube-scheduler"
TEMPLATES = TemplateRegistry(ResourceAxis())
decode = decoder_of(watched_kind(ResourceClaim))


class SlowWhenRetried:
    """Lets the watch deliver what the first attempt has written without knowing it."""

    name = "Slow"
    timeout_seconds = 30.0

    def __init__(self) -> None:
        self.node_names: list[str] = []

    async def permit(self, state: Any, pod: Any, node_name: str) -> Status:
        self.node_names.append(node_name)
        if len(self.node_names) > 1:
            await asyncio.sleep(6)
        return SUCCESS


async def test_a_claim_that_a_lost_response_allocated_elsewhere_is_not_accepted() -> None:
    lost = Rule(Fault(lose_response=True), "update", "resourceclaims/status", USER)
    late = Rule(Fault(event_delay_seconds=3), "watch", "resourceclaims", USER, times=None)
    slow = SlowWhenRetried()
    nodes = [make_node(name).capacity(cpu="4", memory="8Gi", pods="10") for name in ("n1", "n2")]
    async with cluster(nodes=nodes[:1], faults=Faults([lost, late]), plugins=[slow]) as c:
        claim = make_resource_claim("gpu").request()
        slices = [make_slice(f"n{number}").device(f"d{number}") for number in (1, 2)]
        await c.create(make_device_class(), *slices, claim)
        await c.advance(10)
        await c.create(with_claim(make_pod("web"), "gpu"))
        await c.settle()
        await c.create(nodes[1])
        cordoned = msgspec.json.encode({"spec": {"unschedulable": True}})
        await c.client.patch(NODES, "", "n1", cordoned, content_type=MERGE_PATCH)
        await c.advance(60)

        assert slow.node_names[:2] == ["n1", "n2"]
        stored = await c.client.get(RESOURCE_CLAIMS, "default", "gpu")
        [device] = msgspec.json.decode(stored)["status"]["allocation"]["devices"]["results"]
        assert (c.bound("web"), device["device"]) == ("n2", "d2")


class Server:
    """Stores one claim."""

    def __init__(self, claim: ResourceClaim) -> None:
        self._fields = msgspec.json.decode(claim.whole)

    @property
    def users(self) -> list[str]:
        return [one["uid"] for one in self._fields["status"].get("reservedFor", [])]

    def reserve(self, *names: str) -> None:
        users = self._fields["status"].setdefault("reservedFor", [])
        users += [{"resource": "pods", "name": name, "uid": name} for name in names]
        meta = self._fields["metadata"]
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)

    async def read_resource_claim(self, namespace: str, name: str) -> bytes:
        return msgspec.json.encode(self._fields)

    async def update_resource_claim(
        self, namespace: str, name: str, body: bytes, subresource: str = ""
    ) -> bytes:
        await asyncio.sleep(0)
        new = msgspec.json.decode(body)
        if new["metadata"]["resourceVersion"] != self._fields["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "changed")
        if len(new["status"]["reservedFor"]) > MAX_RESERVATIONS:
            raise ApiError(422, "Invalid", "too many")
        self._fields = new
        self.reserve()
        return msgspec.json.encode(self._fields)

    async def patch_resource_claim_status(self, namespace: str, name: str, body: bytes) -> bytes:
        [gone] = msgspec.json.decode(body)["status"]["reservedFor"]
        users = self._fields["status"]["reservedFor"]
        self._fields["status"]["reservedFor"] = [one for one in users if one["uid"] != gone["uid"]]
        self.reserve()
        return msgspec.json.encode(self._fields)


class Known:
    """The claim as the scheduler knows it."""

    def __init__(self, claim: ResourceClaim) -> None:
        self.claim = claim
        self.awaited_user, self.has_user = "", asyncio.Event()

    def get(self, name: str, namespace: str) -> ResourceClaim:
        return self.claim

    def assume(self, claim: ResourceClaim) -> None:
        self.claim = claim
        if claim.is_reserved_for(self.awaited_user):
            self.has_user.set()

    def remove_in_flight(self, uid: str) -> bool:
        return False


class Binding:
    """Pods that join a claim with some users."""

    def __init__(self, *pods: str, users: int = 0) -> None:
        builder = make_resource_claim("gpu").request()
        builder = builder.allocated({"request": "r", "pool": "n1", "device": "d1"}, node="n1")
        plain = builder.reserved_for(*(f"user-{number}" for number in range(users))).to_dict()
        plain["metadata"] |= {"uid": "u1", "resourceVersion": "1"}
        claim = decode(msgspec.json.encode(plain))
        self.server, self.known = Server(claim), Known(claim)
        handle = cast(Handle, SimpleNamespace(client=self.server, clock=VirtualClock()))
        self.binder = ClaimBinder(
            handle, cast(ClaimStore, self.known), ClaimWriter(handle), TIMEOUT_SECONDS
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self.binder.tasks = cast(PluginTasks, SimpleNamespace(start_soon=self._start_soon))
        self.pods = [TEMPLATES.pod_info(make_pod(name).obj()) for name in pods]
        self.attempts = [Attempt() for _ in pods]
        for attempt in self.attempts:
            attempt.add([claim], None)

    def _start_soon(self, function: Any, *args: Any) -> None:
        self._tasks.add(asyncio.ensure_future(function(*args)))

    def start(self, number: int) -> asyncio.Task[None]:
        pod, attempt = self.pods[number], self.attempts[number]
        return asyncio.ensure_future(self.binder._bind_in_turn(pod, attempt, 0))

    async def undo(self, number: int) -> None:
        self.binder.undo(self.pods[number], self.attempts[number])
        await asyncio.gather(*self._tasks)


def uids(pods: list[PodInfo]) -> list[str]:
    return [pod.uid for pod in pods]


async def test_a_pod_that_joined_and_is_evicted_before_its_turn_is_no_user() -> None:
    binding = Binding("a", "b", "c")
    binding.known.awaited_user = binding.pods[2].uid
    tasks = [binding.start(number) for number in range(3)]
    await binding.known.has_user.wait()
    assert not tasks[2].done()
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert tasks[2].cancelled()
    await binding.undo(2)
    assert binding.server.users == uids(binding.pods[:2])


async def test_room_for_users_is_counted_again_after_a_conflict() -> None:
    binding = Binding("a", "b", "c", "d", users=MAX_RESERVATIONS - 4)
    binding.server.reserve("x", "y", "z")
    turn = binding.binder._turns["u1"] = _Turn()
    turn.joining |= {pod.uid: pod for pod in binding.pods}
    await binding.start(0)
    assert len(binding.server.users) == MAX_RESERVATIONS
    assert binding.server.users[-1] == binding.pods[0].uid
