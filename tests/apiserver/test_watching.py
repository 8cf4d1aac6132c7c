"""WATCH: where it begins, what it shows, how it ends."""

from __future__ import annotations

import asyncio

import pytest

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.in_process import InProcessTransport
from ksched.errors import Unavailable
from ksched.testing.virtual_time import VirtualClock

PODS = "/api/v1/namespaces/default/pods"
INITIAL_END = "k8s.io/initial-events-end"


async def version(client):
    return (await client.get(PODS))["metadata"]["resourceVersion"]


async def test_changes_after_a_version_come_in_order(client):
    since = await version(client)
    await client.create_pod("a")
    async with client.watch(f"{PODS}?resourceVersion={since}") as events:
        await client.bind("a", "n1")
        await client.create_pod("b")
        await client.ok("DELETE", f"{PODS}/b")
        seen = [await events.seen() for _ in range(5)]
    assert seen == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        # An unbound pod is marked and removed at once; the real server shows both steps.
        ("MODIFIED", "b"),
        ("DELETED", "b"),
    ]


async def test_versions_of_events_grow_and_a_deletion_has_its_own(client):
    async with client.watch(f"{PODS}?resourceVersion={await version(client)}") as events:
        await client.create_pod("a")
        await client.ok("DELETE", f"{PODS}/a")
        versions = [
            int((await events.next())["object"]["metadata"]["resourceVersion"]) for _ in range(3)
        ]
    assert versions == sorted(set(versions))


async def test_a_watch_from_the_future_is_refused_inside_the_stream(client):
    async with client.watch(f"{PODS}?resourceVersion=99999") as events:
        event = await events.next()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (504, "Timeout")
    assert "Too large resource version: 99999" in event["object"]["message"]


@pytest.mark.parametrize("query", ["", "resourceVersion=0&"], ids=["unset", "zero"])
async def test_without_a_version_the_state_comes_first(client, query):
    await client.create_pod("b")
    await client.create_pod("a")
    async with client.watch(f"{PODS}?{query}allowWatchBookmarks=true") as events:
        assert [await events.seen() for _ in range(2)] == [("ADDED", "a"), ("ADDED", "b")]
        bookmark = await events.next()
        await client.create_pod("c")
        assert await events.seen() == ("ADDED", "c")
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["kind"] == "Pod"
    assert bookmark["object"]["metadata"]["annotations"] == {INITIAL_END: "true"}


async def test_watch_list_ends_its_initial_events_with_a_bookmark(client):
    await client.create_pod("a")
    now = await version(client)
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with client.watch(f"{PODS}?{query}&resourceVersion={now}") as events:
        assert await events.seen() == ("ADDED", "a")
        bookmark = (await events.next())["object"]["metadata"]
    assert bookmark["annotations"][INITIAL_END] == "true"
    assert bookmark["resourceVersion"] == now


async def test_initial_events_may_be_declined(client):
    await client.create_pod("a")
    query = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
    async with client.watch(f"{PODS}?{query}") as events:
        await client.create_pod("b")
        assert await events.seen() == ("ADDED", "b")


async def test_bookmarks_come_every_minute_and_at_the_end(client):
    query = "allowWatchBookmarks=true&timeoutSeconds=150"
    loop, arrivals = asyncio.get_running_loop(), []
    since = await version(client)
    async with client.watch(f"{PODS}?{query}&resourceVersion={since}") as events:
        for _ in range(3):
            event = await events.next()
            arrivals.append((loop.time(), event["type"]))
        assert await events.rest() == []
    assert arrivals == [(60.0, "BOOKMARK"), (120.0, "BOOKMARK"), (150.0, "BOOKMARK")]


async def test_a_bookmark_carries_the_version_of_the_whole_store(client):
    since = await version(client)
    path = f"{PODS}?allowWatchBookmarks=true&timeoutSeconds=10&resourceVersion={since}"
    async with client.watch(path) as events:
        node = await client.create_node("n1")
        [bookmark] = await events.rest()
    found = bookmark["object"]["metadata"]["resourceVersion"]
    assert found == node["metadata"]["resourceVersion"]


async def test_without_asking_there_are_no_bookmarks(client):
    since = await version(client)
    async with client.watch(f"{PODS}?timeoutSeconds=150&resourceVersion={since}") as events:
        assert await events.rest() == []
    assert asyncio.get_running_loop().time() == 150.0


async def test_a_watch_without_timeout_ends_within_the_hour(client):
    async with client.watch(f"{PODS}?resourceVersion={await version(client)}") as events:
        await events.rest()
    assert 1800 <= asyncio.get_running_loop().time() <= 3600


async def test_objects_enter_and_leave_a_selection(client):
    await client.create_pod("a", metadata={"labels": {"app": "web"}})
    await client.create_pod("b")
    since = await version(client)
    path = f"{PODS}?labelSelector=app%3Dweb&resourceVersion={since}"
    async with client.watch(path) as events:
        await client.patch(f"{PODS}/b", {"metadata": {"labels": {"app": "web"}}}, "merge")
        await client.patch(f"{PODS}/b", {"metadata": {"labels": {"x": "y"}}}, "merge")
        left = await client.patch(f"{PODS}/b", {"metadata": {"labels": {"app": "db"}}}, "merge")
        await client.patch(f"{PODS}/b", {"metadata": {"labels": {"app": "dc"}}}, "merge")
        assert await events.seen() == ("ADDED", "b")
        assert await events.seen() == ("MODIFIED", "b")
        gone = await events.next()
        await client.ok("DELETE", f"{PODS}/b")
        await client.ok("DELETE", f"{PODS}/a")
        assert await events.seen() == ("MODIFIED", "a")
    assert gone["type"] == "DELETED"
    # The last state that matched, under the version of the change that ended it.
    assert gone["object"]["metadata"]["labels"] == {"app": "web", "x": "y"}
    assert gone["object"]["metadata"]["resourceVersion"] == left[1]["metadata"]["resourceVersion"]


async def test_a_pod_that_ends_leaves_the_schedulers_watch(client):
    selector = "status.phase!%3DSucceeded,status.phase!%3DFailed"
    since = await version(client)
    path = f"/api/v1/pods?fieldSelector={selector}&resourceVersion={since}"
    async with client.watch(path) as events:
        await client.create_pod("a")
        await client.patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}}, "merge")
        assert [await events.seen() for _ in range(2)] == [("ADDED", "a"), ("DELETED", "a")]


async def test_one_object_can_be_watched_by_selector(client):
    await client.create_pod("a")
    async with client.watch(f"{PODS}?fieldSelector=metadata.name%3Da") as events:
        assert await events.seen() == ("ADDED", "a")
        await client.create_pod("b")
        await client.bind("a", "n1")
        assert await events.seen() == ("MODIFIED", "a")


async def test_a_path_with_a_name_is_read_not_watched(client):
    await client.create_pod("a")
    assert (await client.get(f"{PODS}/a?watch=true"))["kind"] == "Pod"


async def test_a_version_too_old_is_said_inside_the_stream(client, server):
    since = await version(client)
    await client.create_pod("a")
    server.store.compact()
    async with client.watch(f"{PODS}?resourceVersion={since}") as events:
        assert events.status == 200
        [event] = await events.rest()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith(f"too old resource version: {since} (")


async def test_history_is_bounded_per_resource(client):
    server = ApiServer(VirtualClock(), history=3)
    client.server, client.transport = server, InProcessTransport(server)
    since = await version(client)
    for number in range(3):
        await client.create_pod(f"p{number}")
    async with client.watch(f"{PODS}?resourceVersion={since}") as events:
        assert await events.seen() == ("ADDED", "p0")
    await client.create_pod("p3")
    async with client.watch(f"{PODS}?resourceVersion={since}") as events:
        assert (await events.next())["type"] == "ERROR"
    for number in range(9):
        await client.create_node(f"n{number}")
    async with client.watch(f"{PODS}?resourceVersion={int(since) + 1}") as events:
        assert await events.seen() == ("ADDED", "p1")


async def test_a_reader_that_falls_behind_loses_the_stream(client):
    server = ApiServer(VirtualClock(), watch_queue_limit=5)
    client.server, client.transport = server, InProcessTransport(server)
    since = await version(client)
    async with client.watch(f"{PODS}?resourceVersion={since}") as events:
        for number in range(7):
            await client.create_pod(f"p{number}")
        assert await events.rest() == []
    collection = server.store.collections()[-1]
    assert not collection.watches


async def test_watches_unsubscribe_when_their_reader_leaves(client, server):
    async with client.watch(PODS):
        assert sum(len(c.watches) for c in server.store.collections()) == 1
    assert sum(len(c.watches) for c in server.store.collections()) == 0


async def test_dropped_watches_end_in_good_order(client, server):
    async with client.watch(f"{PODS}?resourceVersion={await version(client)}") as events:
        await client.create_pod("a")
        server.drop_watches()
        assert [e["type"] for e in await events.rest()] == ["ADDED"]


async def test_silence_longer_than_the_idle_timeout_is_an_error(client):
    async with client.transport.stream(f"{PODS}?watch=true", idle_timeout=5) as stream:
        with pytest.raises(Unavailable, match="silent for 5 seconds"):
            await anext(stream.lines)
    assert asyncio.get_running_loop().time() == 5.0


async def test_a_refused_watch_yields_the_error(client):
    async with client.transport.stream(f"{PODS}?watch=true&fieldSelector=a%3Db") as stream:
        assert stream.status == 400
        assert b"field label not supported" in await anext(stream.lines)
