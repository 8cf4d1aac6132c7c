"""Whoever is about to rely on a copy sees what was stored before it asked."""

from __future__ import annotations

import asyncio

import pytest

from ksched.client.catching_up import LIVE_SECONDS, catch_up
from ksched.client.rest import PAGE_LIMIT, ApiClient
from ksched.errors import Unavailable


@pytest.fixture
def caught_up(cluster, clock):
    async def wait(reflector):
        began = clock.now()
        await catch_up(reflector, ApiClient(cluster, clock), clock)
        return clock.now() - began

    return wait


@pytest.fixture(params=[1, PAGE_LIMIT + 1], ids=["few", "many"])
def objects(request, cluster):
    for number in range(request.param):
        cluster.put(f"other-{number}")
    return request.param


@pytest.fixture
def many_objects(cluster):
    for number in range(PAGE_LIMIT + 1):
        cluster.put(f"other-{number}")


def lists(cluster):
    return [path for _, path in cluster.requests if "watch=" not in path]


async def test_a_watch_that_died_in_silence_is_replaced_by_a_list(
    cluster, witness, reflect, caught_up, objects
):
    async with reflect() as reflector:
        await asyncio.sleep(60)
        cluster.streams.clear()
        cluster.put("unseen")
        seconds = await caught_up(reflector)
        assert "default/unseen" in witness.view
        assert seconds < 0.1 + (LIVE_SECONDS if objects > PAGE_LIMIT else 0)


@pytest.mark.usefixtures("many_objects")
async def test_a_watch_that_goes_on_proves_that_nothing_is_missing(
    cluster, witness, reflect, caught_up
):
    async with reflect() as reflector:
        await asyncio.sleep(60)
        before = len(lists(cluster))
        cluster.put("seen")
        assert await caught_up(reflector) < 0.1
        assert "default/seen" in witness.view
        # One that asks for the newest version.
        assert len(lists(cluster)) == before + 1


@pytest.mark.usefixtures("many_objects")
async def test_an_event_of_another_time_proves_nothing(cluster, witness, reflect, caught_up):
    async with reflect() as reflector:
        await asyncio.sleep(60)
        stream, late = cluster.streams.pop(), cluster.version + 1
        cluster.put("old")
        cluster.put("unseen")
        waiting = asyncio.ensure_future(caught_up(reflector))
        await asyncio.sleep(LIVE_SECONDS / 2)
        cluster.streams.append(stream)
        version, cluster.version = cluster.version, late
        cluster.bookmark()
        cluster.version = version
        assert await waiting >= LIVE_SECONDS
        assert "default/unseen" in witness.view


async def test_what_was_listed_just_now_is_not_listed_again(cluster, reflect, caught_up):
    async with reflect() as reflector:
        before = len(cluster.requests)
        assert await caught_up(reflector) == 0
        assert len(cluster.requests) == before


async def test_without_an_answer_everything_is_listed_as_soon_as_there_is_one(
    cluster, witness, reflect, caught_up, objects
):
    async with reflect() as reflector:
        await asyncio.sleep(60)
        cluster.streams.clear()
        cluster.put("unseen")
        cluster.answers.extend([Unavailable(0, "AnswerLost", "reset")] * 3)
        await caught_up(reflector)
        assert "default/unseen" in witness.view
