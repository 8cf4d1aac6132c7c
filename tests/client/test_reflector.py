"""List and watch on virtual time, against a scripted server.

Covers ``ksched.client.watch_store`` too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging

import pytest

from ksched.client.rest import Selection
from ksched.errors import Unavailable
from ksched.transport import NOT_SENT, Response


def error_event(code, message="no"):
    status = {"kind": "Status", "code": code, "message": message}
    return json.dumps({"type": "ERROR", "object": status}).encode()


def sizes(witness):
    return {key: obj.size for key, obj in sorted(witness.view.items())}


async def test_lists_in_pages_then_watches(cluster, witness, reflect):
    for number in range(5):
        cluster.put(f"w{number}", size=number)
    async with reflect(page_limit=2):
        assert witness.take() == [f"added w{n}" for n in range(5)] + ["synced"]
        await asyncio.sleep(1)
        cluster.put("w0", size=7)
        cluster.delete("w1")
        cluster.put("new")
        await asyncio.sleep(1)
    assert witness.take() == ["modified w0", "deleted w1", "added new"]
    paths = [path for _, path in cluster.requests]
    assert [("limit=2" in path, "continue=" in path) for path in paths] == [
        (True, False),
        (True, True),
        (True, True),
        (False, False),
    ]
    assert "watch=1" in paths[3]
    assert "resourceVersion=105" in paths[3]
    assert "allowWatchBookmarks=true" in paths[3]


async def test_selectors_are_sent_with_every_request(cluster, reflect):
    selection = Selection(field_selector="status.phase!=Failed", label_selector="a in (b,c)")
    async with reflect(selection=selection):
        await asyncio.sleep(1)
    for _, path in cluster.requests:
        assert "fieldSelector=status.phase%21%3DFailed" in path
        assert "labelSelector=a%20in%20%28b%2Cc%29" in path


async def test_410_lists_again_and_tells_only_differences(cluster, witness, reflect):
    for name in ("kept", "changed", "gone", "reborn"):
        cluster.put(name)
    async with reflect():
        await asyncio.sleep(1)
        witness.take()
        cluster.streams.clear()  # the server stops telling, the connection stays
        cluster.put("changed", size=2)
        cluster.delete("gone")
        cluster.delete("reborn")
        cluster.put("reborn", size=3)
        cluster.put("new")
        cluster.forget_history()
        await asyncio.sleep(300)  # the silence is noticed after four minutes
    assert sorted(witness.take()) == [
        "added new",
        "added reborn",
        "deleted gone",
        "deleted reborn",
        "modified changed",
    ]
    assert sizes(witness) == {
        "default/changed": 2,
        "default/kept": 0,
        "default/new": 0,
        "default/reborn": 3,
    }


async def test_bookmarks_move_the_version_that_a_new_watch_starts_from(cluster, reflect):
    async with reflect():
        await asyncio.sleep(1)
        cluster.version = 900
        cluster.bookmark()
        await asyncio.sleep(1)
        cluster.end_streams()
        await asyncio.sleep(5)
    assert "resourceVersion=900" in cluster.requests[-1][1]
    assert len(cluster.requests) == 3


async def test_server_that_closes_at_once_sees_no_storm(cluster, reflect):
    async with reflect():
        cluster.answers.extend([[] for _ in range(1000)])
        cluster.end_streams()
        await asyncio.sleep(600)
    opened = [at for at, path in cluster.requests if "watch=1" in path]
    gaps = [later - earlier for earlier, later in itertools.pairwise(opened)]
    assert 0.8 <= gaps[0] <= 1.6
    assert all(30 <= gap <= 60 for gap in gaps[6:])
    assert len(opened) < 30


async def test_server_that_fails_is_asked_ever_less_often(cluster, witness, reflect):
    cluster.answers.extend(Unavailable(0, "AnswerLost", "reset") for _ in range(6))
    cluster.put("w")
    async with reflect():
        assert witness.take() == ["added w", "synced"]
        assert 0.8 * 63 <= asyncio.get_running_loop().time() <= 2 * 0.8 * 63


async def test_server_that_cannot_be_reached_is_found_within_ten_seconds_of_its_return(
    cluster, reflect
):
    cluster.answers.extend(Unavailable(0, NOT_SENT, "refused") for _ in range(100))
    async with reflect():
        tried = [at for at, _ in cluster.requests]
        gaps = [later - earlier for earlier, later in itertools.pairwise(tried[5:-1])]
        assert all(5 <= gap <= 10 for gap in gaps)


async def test_watch_that_ends_after_a_healthy_time_is_reopened_at_once(cluster, reflect):
    async with reflect():
        await asyncio.sleep(100)
        cluster.end_streams()
        await asyncio.sleep(0.01)
        assert [at for at, _ in cluster.requests] == [0, 0, 100]


async def test_watch_that_tells_something_does_not_wait_longer_each_time(cluster, reflect):
    async with reflect():
        for number in range(20):
            await asyncio.sleep(2)
            cluster.put("w", size=number)
            await asyncio.sleep(0.01)
            cluster.end_streams()
        await asyncio.sleep(2)
    opened = [at for at, path in cluster.requests if "watch=1" in path]
    assert max(b - a for a, b in itertools.pairwise(opened)) < 4.1


async def test_silent_connection_is_given_up(cluster, witness, reflect):
    async with reflect(idle_timeout=7):
        await asyncio.sleep(1)
        cluster.streams.clear()
        cluster.put("unseen")
        await asyncio.sleep(12)
        assert witness.take() == ["synced", "added unseen"]


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(Unavailable(0, "AnswerLost", "reset"), id="connection reset"),
        pytest.param(b'{"type":"ADDED","object":{"metada', id="line cut in two"),
        pytest.param(b"upstream connect error\n", id="text of a proxy"),
        pytest.param(b"\xff\xfe\x00", id="bytes that are no text"),
        pytest.param(b'{"type":"SURPRISE","object":{}}', id="unknown event"),
        pytest.param(b"[]", id="JSON that is no event"),
        pytest.param(error_event(500), id="ERROR event 500"),
        pytest.param(error_event(410), id="ERROR event 410"),
        pytest.param(b'{"type":"ERROR","object":{}}', id="ERROR event without a status"),
    ],
)
async def test_a_broken_watch_loses_and_doubles_nothing(cluster, witness, reflect, last):
    cluster.put("a", size=1)
    async with reflect():
        await asyncio.sleep(0.1)
        cluster.put("b", size=1)
        await asyncio.sleep(0.1)
        cluster.end_streams(last)
        cluster.put("a", size=2)
        cluster.delete("b")
        cluster.put("c", size=3)
        await asyncio.sleep(10)
        told = [line for line in witness.take() if not (line.endswith("b") or line == "synced")]
        assert told == ["added a", "modified a", "added c"]
        assert sizes(witness) == {"default/a": 2, "default/c": 3}


async def test_line_that_is_always_garbled_at_one_place_is_passed_by_listing(
    cluster, witness, reflect
):
    async with reflect():
        cluster.end_streams()
        cluster.answers.extend([[b"garbage"] for _ in range(3)])
        cluster.put("w", size=1)
        await asyncio.sleep(60)
        assert sizes(witness) == {"default/w": 1}
    assert [("watch" in path) for _, path in cluster.requests[-3:]] == [True, False, True]


async def test_version_the_server_does_not_know_leads_to_a_new_list(cluster, witness, reflect):
    cluster.put("lost")
    cluster.put("deleted")
    async with reflect():
        await asyncio.sleep(0.1)
        cluster.delete("deleted")
        await asyncio.sleep(0.1)
        cluster.end_streams()
        cluster.answers.extend([Response(504, {}, b"Too large resource version")] * 3)
        cluster.objects.clear()  # restored from a backup of long ago
        cluster.history.clear()
        cluster.version = 7
        cluster.put("old")
        await asyncio.sleep(60)
        assert list(witness.view) == ["default/old"]
        cluster.put("old", size=5)
        cluster.put("deleted", size=6)
        await asyncio.sleep(1)
        assert sizes(witness) == {"default/deleted": 6, "default/old": 5}


def lose_data(cluster):
    """Begin anew at version 1, as a server in memory does when it restarts."""
    cluster.objects.clear()
    cluster.history.clear()
    cluster.version = 1


@pytest.mark.parametrize("news", ["bookmark", "event"])
async def test_version_that_goes_back_leads_to_a_new_list(cluster, witness, reflect, caplog, news):
    cluster.put("kept")
    cluster.put("lost")
    async with reflect():
        await asyncio.sleep(0.1)
        witness.take()
        lose_data(cluster)
        cluster.put("kept", size=1)
        if news == "bookmark":
            cluster.bookmark()
        await asyncio.sleep(10)
        assert witness.take() == ["deleted kept", "added kept", "deleted lost"]
        cluster.put("fresh")
        await asyncio.sleep(1)
        assert witness.take() == ["added fresh"]
    errors = [record.err for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(errors) == 1
    assert "resourceVersion went back from 102 to 2" in errors[0]


async def test_deletion_with_the_last_stored_version_is_no_step_back(cluster, witness, reflect):
    cluster.put("a")
    deletion = json.dumps({"type": "DELETED", "object": cluster.objects["a"]}).encode()
    async with reflect():
        await asyncio.sleep(0.1)
        cluster.put("b")
        cluster.history.append((cluster.version, "DELETED", cluster.objects.pop("a")))
        cluster._push(deletion)
        await asyncio.sleep(0.1)
        assert witness.take() == ["added a", "synced", "added b", "deleted a"]
        cluster.end_streams()
        await asyncio.sleep(5)
    assert "resourceVersion=102" in cluster.requests[-1][1]
    assert len(cluster.requests) == 3


@pytest.mark.parametrize("code", [429, 503, 500, 403, 404])
async def test_refused_watch_is_tried_again(cluster, witness, reflect, code):
    async with reflect():
        await asyncio.sleep(0.1)
        cluster.answers.append(Response(code, {}, b"plain text"))
        cluster.end_streams()
        cluster.put("w")
        await asyncio.sleep(10)
        assert witness.take() == ["synced", "added w"]


async def test_server_that_asks_for_patience_gets_it(cluster, witness, reflect):
    slow_down = {"Retry-After": "20"}
    cluster.answers.append(Response(429, slow_down, b"later"))
    async with reflect():
        assert asyncio.get_running_loop().time() == 20
        await asyncio.sleep(0.1)
        cluster.answers.append(Response(503, slow_down, b"later"))
        cluster.end_streams()
        await asyncio.sleep(30)
        *_, refused, accepted = (at for at, _ in cluster.requests)
        assert accepted - refused == pytest.approx(20)


async def test_replayed_and_reordered_events_are_told_once(cluster, witness, reflect):
    cluster.put("a", size=1)
    cluster.put("dead")
    cluster.delete("dead")
    async with reflect():
        await asyncio.sleep(0.1)
        cluster.put("a", size=2)
        cluster.put("b", size=1)
        cluster.delete("b")
        await asyncio.sleep(0.1)
        for _, kind, obj in [*cluster.history, *reversed(cluster.history)]:
            cluster._push(json.dumps({"type": kind, "object": obj}).encode())
        await asyncio.sleep(0.1)
        assert witness.take() == ["added a", "synced", "modified a", "added b", "deleted b"]


async def test_pages_that_expired_are_replaced_by_one_complete_list(cluster, witness, reflect):
    for number in range(4):
        cluster.put(f"w{number}")
    cluster.answers.append(Response(500, {}, b"first try fails"))
    request = cluster.request

    async def forgetting(method, path, *args, **kwargs):
        if "continue" in path:
            cluster._pages.clear()
        return await request(method, path, *args, **kwargs)

    cluster.request = forgetting
    async with reflect(page_limit=3):
        assert witness.take() == [f"added w{n}" for n in range(4)] + ["synced"]


async def test_list_that_fails_halfway_is_begun_again_without_doubles(cluster, witness, reflect):
    for number in range(4):
        cluster.put(f"w{number}")
    request = cluster.request
    broken = [True]

    async def breaking(method, path, *args, **kwargs):
        if "continue" in path and broken:
            broken.clear()
            cluster.delete("w0")
            raise Unavailable(0, "AnswerLost", "reset")
        return await request(method, path, *args, **kwargs)

    cluster.request = breaking
    async with reflect(page_limit=2):
        assert witness.take() == [*(f"added w{n}" for n in range(4)), "deleted w0", "synced"]


async def test_object_that_cannot_be_decoded_is_logged_once_and_skipped(
    cluster, witness, reflect, caplog
):
    cluster.put("bad", size="huge")
    cluster.put("good", size=1)
    with caplog.at_level(logging.ERROR):
        async with reflect():
            await asyncio.sleep(0.1)
            assert witness.take() == ["added good", "synced"]
            cluster.put("bad", size="huger")
            cluster.put("good", size="nonsense")
            await asyncio.sleep(0.1)
            assert witness.take() == ["deleted good"]
            cluster.put("good", size=2)
            cluster.put("bad", size=1)
            await asyncio.sleep(0.1)
            assert witness.take() == ["added good", "added bad"]
            cluster.delete("bad")
            await asyncio.sleep(0.1)
            assert witness.take() == ["deleted bad"]
    assert [record.key for record in caplog.records] == ["default/bad", "default/good"]
    assert {record.message for record in caplog.records} == {"object cannot be decoded"}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Response(200, {}, b"<html>login</html>"), id="a page instead of a list"),
        pytest.param(Response(200, {}, b'{"items":[]}'), id="a list without a version"),
        pytest.param(Response(200, {}, b'{"items":[{"meta'), id="a list cut in two"),
        pytest.param(Response(401, {}, b"Unauthorized"), id="unauthorized"),
    ],
)
async def test_nonsense_instead_of_a_list_is_survived(cluster, witness, reflect, answer):
    cluster.answers.extend([answer] * 3)
    cluster.put("w")
    async with reflect():
        assert witness.take() == ["added w", "synced"]
        assert asyncio.get_running_loop().time() > 0.8 * 7


async def test_handler_that_raises_stops_the_reflector(cluster, witness, reflect):
    def added(obj):
        raise RuntimeError("handler")

    witness.added = added
    cluster.put("w")
    with pytest.raises(ExceptionGroup) as caught:
        async with reflect():
            pass
    assert caught.group_contains(RuntimeError, match="handler")
