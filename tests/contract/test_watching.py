"""WATCH: order, selections, bookmarks, initial events, history, and the reflector on top."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from ksched.api.decoding import decode_pod
from ksched.api.resources import EVENTS, PODS
from ksched.client.reflector import Reflector
from ksched.client.rest import Selection
from ksched.errors import ApiError

pytestmark = pytest.mark.real_time


async def version_of(api) -> str:
    return (await api.list(PODS))["metadata"]["resourceVersion"]


async def test_a_watch_tells_every_change_in_order(api):
    async with api.watch(PODS, resource_version=await version_of(api)) as events:
        created = await api.create_pod("web")
        patched = await api.patch(PODS, "web", {"metadata": {"labels": {"a": "1"}}})
        await api.delete(PODS, "web")
        seen = [await events.next() for _ in range(4)]

    # A pod is marked before it goes, even when it goes at once.
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    objects = [event["object"] for event in seen]
    assert objects[:2] == [created, patched]
    versions = [int(obj["metadata"]["resourceVersion"]) for obj in objects]
    assert versions == sorted(set(versions))
    assert all("deletionTimestamp" in obj["metadata"] for obj in objects[2:])
    assert objects[3]["metadata"]["labels"] == {"a": "1"}
    assert {(obj["kind"], obj["apiVersion"]) for obj in objects} == {("Pod", "v1")}


async def test_a_watch_begins_where_it_is_told(api):
    await api.create_pod("before")
    version = await version_of(api)
    await api.create_pod("after")

    async with api.watch(PODS, resource_version=version) as events:
        assert await events.seen() == ("ADDED", "after")


async def test_a_watch_without_a_version_begins_with_the_state(api):
    await api.create_pod("one")

    async with api.watch(PODS, resource_version="") as events:
        state = [await events.seen(), await events.seen()]
        await api.create_pod("two")
        later = await events.seen()

    assert state == [("ADDED", "one"), ("BOOKMARK", "")]
    assert later == ("ADDED", "two")


async def test_an_object_enters_and_leaves_a_selection_of_labels(api):
    selection = Selection(api.namespace, label_selector="app=web")
    version = await version_of(api)
    async with api.watch(PODS, selection, resource_version=version) as events:
        await api.create_pod("web")
        await api.patch(PODS, "web", {"metadata": {"labels": {"app": "web"}}})
        await api.patch(PODS, "web", {"metadata": {"labels": {"tier": "1"}}})
        left = await api.patch(PODS, "web", {"metadata": {"labels": {"app": "db"}}})
        seen = [await events.next() for _ in range(3)]

    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED"]
    # Its last matching state, under the version of the change that took it away.
    last = seen[2]["object"]["metadata"]
    assert last["labels"] == {"app": "web", "tier": "1"}
    assert last["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_a_bound_pod_leaves_the_watch_of_unbound_pods(api):
    unbound = Selection(api.namespace, field_selector="spec.nodeName=")
    bound = Selection(api.namespace, field_selector="spec.nodeName!=")
    version = await version_of(api)
    async with (
        api.watch(PODS, unbound, resource_version=version) as waiting,
        api.watch(PODS, bound, resource_version=version) as placed,
    ):
        await api.bind(await api.create_pod("web"), "n1")

        assert [await waiting.seen(), await waiting.seen()] == [
            ("ADDED", "web"),
            ("DELETED", "web"),
        ]
        assert await placed.seen() == ("ADDED", "web")


async def test_a_bookmark_comes_before_the_end_and_moves_the_version(api):
    version = await version_of(api)
    other = Selection(api.namespace, label_selector="app=nothing")
    async with api.watch(PODS, other, resource_version=version, timeout_seconds=3) as events:
        created = await api.create_pod("unseen")
        rest = await events.rest()

    assert {event["type"] for event in rest} == {"BOOKMARK"}
    last = rest[-1]["object"]
    assert (last["kind"], last["apiVersion"]) == ("Pod", "v1")
    assert int(last["metadata"]["resourceVersion"]) >= int(created["metadata"]["resourceVersion"])


async def test_a_watch_ends_after_its_time(api):
    began = api.clock.now()
    path = f"{PODS.path(api.namespace)}?watch=1&timeoutSeconds=1"
    async with api.transport.stream(path) as stream:
        lines = [line async for line in stream.lines]

    assert lines == []
    assert 0.9 <= api.clock.now() - began < 5


async def test_initial_events_end_with_a_marked_bookmark(api):
    await api.create_pod("one")
    two = await api.create_pod("two")

    async with api.watch(PODS, resource_version="", send_initial_events=True) as events:
        state = sorted([await events.seen(), await events.seen()])
        mark = (await events.next())["object"]["metadata"]
        await api.create_pod("three")
        later = await events.seen()

    assert state == [("ADDED", "one"), ("ADDED", "two")]
    assert mark["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["resourceVersion"]) >= int(two["metadata"]["resourceVersion"])
    assert later == ("ADDED", "three")


async def test_a_watch_of_forgotten_history_says_410_in_the_stream(api):
    # Events, because a real server's cache remembers other kinds longer than etcd does.
    version = (await api.list(EVENTS))["metadata"]["resourceVersion"]
    for name in "ab":
        await api.create_pod(name)
    api.forget_history()

    async with api.watch(EVENTS, resource_version=version) as events:
        [event] = await events.rest()

    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert "too old" in status["message"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        pytest.param("sendInitialEvents=true", "requires setting", id="no match"),
        pytest.param(
            "resourceVersionMatch=NotOlderThan&resourceVersion=1",
            "is forbidden for watch unless sendInitialEvents is provided",
            id="no initial events",
        ),
    ],
)
async def test_bad_options_are_refused(api, query, message):
    with pytest.raises(ApiError, match=message) as caught:
        await api.send("GET", f"{PODS.path(api.namespace)}?watch=1&{query}")

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


@dataclass
class Diary:
    """What a reflector told, in order."""

    entries: list[tuple[str, str]] = field(default_factory=list)
    written: asyncio.Event = field(default_factory=asyncio.Event)

    def _write(self, what: str, pod) -> None:
        self.entries.append((what, pod.metadata.name))
        self.written.set()

    def added(self, obj) -> None:
        self._write("added", obj)

    def modified(self, old, new) -> None:
        self._write("modified", new)

    def deleted(self, obj) -> None:
        self._write("deleted", obj)

    def synced(self) -> None:
        self.entries.append(("synced", ""))

    async def until(self, count: int) -> list[tuple[str, str]]:
        while len(self.entries) < count:
            self.written.clear()
            await self.written.wait()
        return self.entries


@pytest.mark.parametrize("use_watch_list", [True, False], ids=["watch list", "pages"])
async def test_a_reflector_sees_each_change_once(api, use_watch_list):
    for name in ("a", "b", "c"):
        await api.create_pod(name)
    diary = Diary()
    reflector = Reflector(
        api.client,
        PODS,
        decode_pod,
        diary,
        api.clock,
        selection=Selection(api.namespace, field_selector="status.phase!=Succeeded"),
        use_watch_list=use_watch_list,
        page_limit=2,
    )
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reflector.run())
        await reflector.wait_synced()
        await api.bind(await api.create_pod("d"), "n1")
        await api.patch(PODS, "a", {"status": {"phase": "Succeeded"}}, subresource="status")
        await api.delete(PODS, "b")
        entries = await diary.until(9)
        running.cancel()

    assert sorted(entries[:3]) == [("added", "a"), ("added", "b"), ("added", "c")]
    assert entries[3:] == [
        ("synced", ""),
        ("added", "d"),
        ("modified", "d"),
        ("deleted", "a"),
        ("modified", "b"),
        ("deleted", "b"),
    ]
    assert {pod.spec.node_name for pod in reflector.objects.values()} == {"", "n1"}
