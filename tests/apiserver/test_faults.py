"""Faults between client and server, on the in-process path."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from ksched.apiserver.faults import Fault, Faults, Rule, StreamEnd
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.status_errors import StatusError, too_many_requests
from ksched.errors import Unavailable

PODS = "/api/v1/namespaces/default/pods"
UNAVAILABLE = StatusError(503, "ServiceUnavailable", "try later")


def now():
    return asyncio.get_running_loop().time()


@pytest.fixture
def faults():
    return Faults()


@pytest.fixture
def shaky(client, server, faults):
    client.transport = InProcessTransport(server, "shaky", faults)
    return client


async def test_a_refusal_happens_as_often_as_asked_and_performs_nothing(shaky, faults):
    faults.rules.append(Rule(Fault(answer=UNAVAILABLE), "create", "pods", times=2))
    answers = [(await shaky.send("POST", PODS, shaky.pod("a")))[0] for _ in range(3)]
    assert answers == [503, 503, 201]
    assert len(faults.fired) == 2


async def test_a_refusal_may_ask_for_patience(shaky, faults):
    busy = too_many_requests("busy", 7, "busy", "test")
    faults.rules.append(Rule(Fault(answer=busy)))
    response = await shaky.respond("GET", PODS)
    assert (response.status, response.headers["Retry-After"]) == (429, "7")


async def test_a_delay_is_spent_before_the_request_is_performed(shaky, faults):
    faults.rules.append(Rule(Fault(delay_seconds=3), "get"))
    with pytest.raises(Unavailable, match="no answer within 2 seconds"):
        await shaky.transport.request("GET", f"{PODS}/a", timeout=2)
    assert now() == 2.0
    faults.rules.append(Rule(Fault(delay_seconds=3), "get"))
    await shaky.respond("GET", f"{PODS}/a")
    assert now() == 5.0


async def test_a_hanging_request_reaches_nobody(shaky, faults, server):
    faults.rules.append(Rule(Fault(hang=True), "create"))
    with pytest.raises(Unavailable):
        await shaky.transport.request("POST", PODS, b"{}", timeout=10)
    assert now() == 10.0
    assert not server.requests


async def test_a_lost_response_leaves_the_deed_done(shaky, faults):
    await shaky.create_pod("a")
    faults.rules.append(Rule(Fault(lose_response=True), "create", "pods/binding"))
    with pytest.raises(Unavailable, match="connection reset"):
        await shaky.bind("a", "n1")
    assert (await shaky.get(f"{PODS}/a"))["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(
    ("end", "last"),
    [
        pytest.param(StreamEnd.CLOSED, [], id="closed"),
        pytest.param(StreamEnd.EXPIRED, [("ERROR", 410)], id="expired"),
    ],
)
async def test_a_watch_ends_after_so_many_events(shaky, faults, end, last):
    faults.rules.append(Rule(Fault(stream_end=end, stream_events=2), "watch"))
    async with shaky.watch(PODS) as events:
        for name in ("a", "b", "c"):
            await shaky.create_pod(name)
        assert [await events.seen() for _ in range(2)] == [("ADDED", "a"), ("ADDED", "b")]
        rest = [(e["type"], e["object"].get("code")) for e in await events.rest()]
    assert rest == last


async def test_a_watch_breaks_after_a_while(shaky, faults):
    faults.rules.append(Rule(Fault(stream_end=StreamEnd.RESET, stream_seconds=9), "watch"))
    async with shaky.watch(PODS) as events:
        with pytest.raises(Unavailable, match="connection reset"):
            await events.rest()
    assert now() == 9.0


async def test_a_half_open_watch_is_silent(shaky, faults):
    faults.rules.append(Rule(Fault(stream_end=StreamEnd.SILENT, stream_events=0), "watch"))
    await shaky.create_pod("a")
    async with shaky.transport.stream(f"{PODS}?watch=1", idle_timeout=90) as stream:
        with pytest.raises(Unavailable, match="silent"):
            await anext(stream.lines)
    assert now() == 90.0


async def test_events_may_come_late_and_twice(shaky, faults):
    faults.rules.append(Rule(Fault(event_delay_seconds=4, duplicate_events=True), "watch"))
    await shaky.create_pod("a")
    async with shaky.watch(PODS) as events:
        assert [await events.seen() for _ in range(2)] == [("ADDED", "a")] * 2
    assert now() == 4.0


async def test_a_watch_may_be_refused(shaky, faults):
    faults.rules.append(Rule(Fault(answer=UNAVAILABLE), "watch"))
    async with shaky.transport.stream(f"{PODS}?watch=1") as stream:
        assert stream.status == 503
        assert msgspec.json.decode(await anext(stream.lines))["message"] == "try later"


@pytest.mark.parametrize(
    ("rule", "codes"),
    [
        pytest.param({"skip": 1}, [404, 503, 404], id="after the first"),
        pytest.param({"times": None}, [503, 503, 503], id="always"),
        pytest.param({"verb": "list"}, [404, 404, 404], id="another verb"),
        pytest.param({"resource": "nodes"}, [404, 404, 404], id="another resource"),
        pytest.param({"user": "shaky"}, [503, 404, 404], id="this user"),
        pytest.param({"user": "other"}, [404, 404, 404], id="another user"),
        pytest.param({"when": lambda r: r.path.endswith("/x")}, [404, 404, 404], id="another path"),
    ],
)
async def test_rules_choose_their_requests(shaky, faults, rule, codes):
    faults.rules.append(Rule(Fault(answer=UNAVAILABLE), **rule))
    assert [(await shaky.send("GET", f"{PODS}/a"))[0] for _ in range(3)] == codes


async def test_chances_repeat_from_the_seed(client, server):
    async def run(seed):
        rule = Rule(Fault(answer=UNAVAILABLE), chance=0.5, times=None)
        client.transport = InProcessTransport(server, faults=Faults([rule], seed))
        return [(await client.send("GET", f"{PODS}/a"))[0] for _ in range(20)]

    assert await run(1) == await run(1) != await run(2)
