"""Whatever the server and the network do, the handler ends up with the server's view."""

from __future__ import annotations

import asyncio
import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ksched.api.objects import Object, ObjectMeta
from ksched.api.resources import ApiResource
from ksched.client.reflector import Reflector
from ksched.client.rest import ApiClient
from ksched.errors import Unavailable
from ksched.testing.virtual_time import VirtualClock, run
from ksched.transport import NOT_SENT, Response

WIDGETS = ApiResource("example.io", "v1", "widgets", "Widget")


class Widget(Object, frozen=True):
    metadata: ObjectMeta
    size: int = 0


decode = msgspec.json.Decoder(Widget).decode
names = st.sampled_from("abcdef")

FAULTS = {
    "429": Response(429, {"Retry-After": "1"}, b"slow down"),
    "500": Response(500, {}, b"<html>oops</html>"),
    "nonsense": Response(200, {}, b"nonsense"),
    "refused": Unavailable(0, NOT_SENT, "refused"),
    "lost": Unavailable(0, "AnswerLost", "reset"),
}
LAST_WORDS = {
    "reset": Unavailable(0, "AnswerLost", "reset"),
    "cut": b'{"type":"MODIFIED","object":{"metad',
    "garbage": b"garbage\n",
    "error": b'{"type":"ERROR","object":{"kind":"Status","code":500}}',
    "gone": b'{"type":"ERROR","object":{"kind":"Status","code":410}}',
}
steps = st.one_of(
    st.tuples(st.just("put"), names, st.integers(0, 3)),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("recreate"), names),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.3, 2.0, 45.0])),
    st.tuples(st.just("break"), st.sampled_from(sorted(LAST_WORDS))),
    st.tuples(st.just("close")),
    st.tuples(st.just("silence")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("bookmark")),
    st.tuples(st.just("replay")),
    st.tuples(st.just("fault"), st.sampled_from(sorted(FAULTS))),
)


async def play(cluster, step):
    match step:
        case ("put", name, size):
            cluster.put(name, size=size)
        case ("delete", name):
            if name in cluster.objects:
                cluster.delete(name)
        case ("recreate", name):
            if name in cluster.objects:
                cluster.delete(name)
            cluster.put(name)
        case ("wait", seconds):
            await asyncio.sleep(seconds)
        case ("break", how):
            cluster.end_streams(LAST_WORDS[how])
        case ("close",):
            cluster.end_streams()
        case ("silence",):
            cluster.streams.clear()
        case ("forget",):
            cluster.forget_history()
        case ("bookmark",):
            cluster.bookmark()
        case ("replay",):
            for _, kind, obj in cluster.history[-4:]:
                line = msgspec.json.encode({"type": kind, "object": obj})
                cluster._push(line)
        case ("fault", which):
            cluster.answers.append(FAULTS[which])


@settings(max_examples=150, deadline=None)
@given(
    script=st.lists(steps, max_size=40),
    watch_list=st.booleans(),
    page_limit=st.sampled_from([1, 2, 500]),
    seed=st.integers(0, 1000),
)
def test_handler_and_server_agree_and_no_change_is_told_twice(
    make_cluster, make_witness, script, watch_list, page_limit, seed
):
    cluster, witness = make_cluster(), make_witness()
    cluster.offers_watch_list = watch_list

    async def main():
        clock = VirtualClock()
        reflector = Reflector(
            ApiClient(cluster, clock),
            WIDGETS,
            decode,
            witness,
            clock,
            rng=random.Random(seed),
            page_limit=page_limit,
            idle_timeout=20.0,
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflector.run())
            for step in script:
                await play(cluster, step)
            # Enough for every fault left, at up to a minute each.
            await asyncio.sleep(120 + 60 * len(cluster.answers))
            task.cancel()

    run(main())
    assert {key: obj.metadata.resource_version for key, obj in witness.view.items()} == {
        f"default/{name}": obj["metadata"]["resourceVersion"]
        for name, obj in cluster.objects.items()
    }
    assert len(witness.versions) == len(set(witness.versions))
    assert witness.is_synced


@settings(max_examples=50, deadline=None)
@given(
    script=st.lists(
        steps.filter(
            lambda step: step not in {("forget",), ("break", "gone")} and step[0] != "fault"
        ),
        max_size=30,
    )
)
def test_as_long_as_the_watch_can_be_resumed_every_single_change_is_told(
    make_cluster, make_witness, script
):
    cluster, witness = make_cluster(), make_witness()

    async def main():
        clock = VirtualClock()
        reflector = Reflector(
            ApiClient(cluster, clock), WIDGETS, decode, witness, clock, use_watch_list=False
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflector.run())
            await reflector.wait_synced()
            for step in script:
                await play(cluster, step)
            await asyncio.sleep(300)
            task.cancel()

    run(main())
    lists = [path for _, path in cluster.requests if "watch" not in path]
    if len(lists) == 1:
        happened = [f"{kind.lower()} {obj['metadata']['name']}" for _, kind, obj in cluster.history]
        assert witness.told[1:] == happened
