"""A reflector that decodes much lets its neighbours run."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from ksched.api.objects import Object, ObjectMeta
from ksched.api.resources import ApiResource
from ksched.client.reflector import Reflector
from ksched.client.rest import ApiClient
from ksched.testing.virtual_time import VirtualClock

WIDGETS = ApiResource("example.io", "v1", "widgets", "Widget")


class Widget(Object, frozen=True):
    metadata: ObjectMeta


decode = msgspec.json.Decoder(Widget).decode


@pytest.mark.parametrize("how", ["list", "streaming list", "watch"])
async def test_neighbours_run_while_much_is_decoded(cluster, witness, how):
    class Slow(VirtualClock):
        """Every look at the clock takes a millisecond, as decoding would."""

        looks = 0

        def now(self):
            self.looks += 1
            return super().now() + self.looks / 1000

    turns = 0

    async def neighbour():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    cluster.offers_watch_list = how == "streaming list"
    clock = Slow()
    reflector = Reflector(
        ApiClient(cluster, clock),
        WIDGETS,
        decode,
        witness,
        clock,
        use_watch_list=how == "streaming list",
    )
    if how != "watch":
        for number in range(1000):
            cluster.put(f"w{number}")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(reflector.run()), group.create_task(neighbour())]
        await reflector.wait_synced()
        if how == "watch":
            while not cluster.streams:  # noqa: ASYNC110
                await asyncio.sleep(0)
            turns = 0
            for number in range(1000):
                cluster.put(f"w{number}")
            while len(witness.view) < 1000:  # noqa: ASYNC110
                await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
    assert len(witness.view) == 1000
    assert turns > 100


@pytest.mark.parametrize("how", ["list", "streaming list", "watch"])
async def test_neighbours_run_while_one_large_object_is_decoded(cluster, witness, how):
    steps, turns, longest = 50, 0, 0
    since_turn = 0

    def decode_in_steps(raw):
        nonlocal since_turn, longest
        for _ in range(steps):
            clock.seconds += 0.002
            since_turn += 1
            longest = max(longest, since_turn)
            yield
        return decode(raw)

    class Working(VirtualClock):
        """Time passes by work only."""

        seconds = 0.0

        def now(self):
            return self.seconds

    async def neighbour():
        nonlocal turns, since_turn
        while True:
            turns += 1
            since_turn = 0
            await asyncio.sleep(0)

    cluster.offers_watch_list = how == "streaming list"
    clock = Working()
    reflector = Reflector(
        ApiClient(cluster, clock),
        WIDGETS,
        decode,
        witness,
        clock,
        use_watch_list=how == "streaming list",
        decode_in_steps=decode_in_steps,
    )
    if how != "watch":
        cluster.put("w", data="x" * 100_000)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(reflector.run()), group.create_task(neighbour())]
        await reflector.wait_synced()
        if how == "watch":
            while not cluster.streams:  # noqa: ASYNC110
                await asyncio.sleep(0)
            cluster.put("w", data="x" * 100_000)
        while len(witness.view) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
    assert turns > steps / 3
    assert longest <= 3
