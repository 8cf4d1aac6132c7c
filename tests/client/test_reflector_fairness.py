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
