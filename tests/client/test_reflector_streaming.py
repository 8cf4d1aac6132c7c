"""Streaming lists (WatchList) on virtual time, and what is done without them."""

from __future__ import annotations

import asyncio
import json

import pytest

from ksched.errors import Unavailable
from ksched.transport import Response


def error_event(code, message="no"):
    status = {"kind": "Status", "code": code, "message": message}
    return json.dumps({"type": "ERROR", "object": status}).encode()


def sizes(witness):
    return {key: obj.size for key, obj in sorted(witness.view.items())}


async def test_streaming_list_syncs_and_goes_on_as_the_watch(cluster, witness, reflect):
    cluster.offers_watch_list = True
    cluster.put("a")
    async with reflect(use_watch_list=True):
        assert witness.take() == ["added a", "synced"]
        cluster.put("b")
        await asyncio.sleep(0.1)
        assert witness.take() == ["added b"]
        assert len(cluster.requests) == 1
        cluster.end_streams()
        cluster.put("c")
        await asyncio.sleep(5)
        assert witness.take() == ["added c"]
        assert "sendInitialEvents" not in cluster.requests[1][1]


async def test_streaming_list_after_410_tells_only_differences(cluster, witness, reflect):
    cluster.offers_watch_list = True
    for name in ("kept", "changed", "gone"):
        cluster.put(name)
    async with reflect(use_watch_list=True):
        witness.take()
        cluster.streams.clear()
        cluster.put("changed", size=1)
        cluster.delete("gone")
        cluster.forget_history()
        await asyncio.sleep(300)
        assert witness.take() == ["modified changed", "deleted gone"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Response(422, {}, b"forbidden"), id="refused"),
        pytest.param(Response(500, {}, b"oops"), id="server error"),
        pytest.param([error_event(500, "RequestWatchProgress is disabled")], id="200 then ERROR"),
        pytest.param([], id="closed at once"),
        pytest.param([b"nonsense"], id="garbage"),
        pytest.param(Unavailable(0, "AnswerLost", "reset"), id="connection reset"),
    ],
)
async def test_streaming_list_that_fails_is_replaced_by_pages_at_once(
    cluster, witness, reflect, answer
):
    cluster.put("a")
    cluster.answers.append(answer)
    async with reflect(use_watch_list=True):
        assert witness.take() == ["added a", "synced"]
        assert asyncio.get_running_loop().time() == 0


@pytest.mark.parametrize(
    ("answer", "is_tried_again"),
    [
        pytest.param(Response(400, {}, b"bad"), False, id="bad request"),
        pytest.param(Response(404, {}, b"no such path"), False, id="not found"),
        pytest.param(Response(405, {}, b"no"), False, id="method not allowed"),
        pytest.param(Response(415, {}, b"no"), False, id="unsupported media type"),
        pytest.param(Response(422, {}, b"forbidden"), False, id="invalid"),
        pytest.param([error_event(422)], False, id="200 then ERROR 422"),
        pytest.param(
            [error_event(500, "etcdserver: RequestWatchProgress is disabled")],
            False,
            id="200 then the ERROR of an old etcd",
        ),
        pytest.param(Response(401, {}, b"who"), True, id="unauthorized"),
        pytest.param(Response(429, {}, b"later"), True, id="too many requests"),
        pytest.param(Response(500, {}, b"oops"), True, id="server error"),
        pytest.param(Response(503, {}, b"starting"), True, id="unavailable"),
        pytest.param([error_event(504)], True, id="200 then ERROR 504"),
        pytest.param([b"nonsense"], True, id="garbage"),
    ],
)
async def test_only_a_server_without_streaming_lists_is_not_asked_for_one_again(
    cluster, reflect, answer, is_tried_again
):
    cluster.offers_watch_list = True
    cluster.answers.append(answer)
    async with reflect(use_watch_list=True):
        await asyncio.sleep(0.1)
        cluster.end_streams(error_event(410))
        await asyncio.sleep(5)
    asked = [path for _, path in cluster.requests if "sendInitialEvents" in path]
    assert len(asked) == (2 if is_tried_again else 1)


async def test_server_that_ignores_the_wish_for_initial_events_is_not_waited_for(
    cluster, witness, reflect
):
    cluster.offers_watch_list = True
    cluster.put("a")
    cluster._open = lambda query, queue: cluster.streams.append(queue) or 200
    async with reflect(use_watch_list=True, watch_list_idle_timeout=4):
        assert asyncio.get_running_loop().time() == 4
        assert witness.take() == ["added a", "synced"]


async def test_changes_among_the_initial_events_are_taken(cluster, witness, reflect):
    def line(kind, name, version, size=0):
        meta = {"name": name, "uid": name, "resourceVersion": str(version)}
        return json.dumps({"type": kind, "object": {"metadata": meta, "size": size}}).encode()

    end = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
    cluster.answers.append(
        [
            line("ADDED", "a", 1),
            line("ADDED", "b", 2),
            line("MODIFIED", "a", 5, 5),
            line("DELETED", "b", 6),
            json.dumps({"type": "BOOKMARK", "object": {"metadata": end}}).encode(),
            line("ADDED", "b", 2),
        ]
    )
    async with reflect(use_watch_list=True):
        await asyncio.sleep(0.1)
        assert sizes(witness) == {"a": 5}
