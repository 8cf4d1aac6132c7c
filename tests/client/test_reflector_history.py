"""A reflector and the past: servers restored from a copy, silence, and what is known of a watch.

Covers ``ksched.client.history`` too.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from ksched.errors import Unavailable


def sizes(witness):
    return {key: obj.size for key, obj in sorted(witness.view.items())}


class Restored:
    """A server restored from the copy that is made when this is; a watch from the future waits."""

    def __init__(self, cluster):
        self._cluster, self._open = cluster, cluster._open
        self._copy = cluster.version, dict(cluster.objects), list(cluster.history)

    def happen(self):
        self._cluster.end_streams(Unavailable(0, "AnswerLost", "reset"))
        self._cluster.version, self._cluster.objects, self._cluster.history = self._copy
        self._cluster._open = self._wait_for_the_version

    def _wait_for_the_version(self, query, queue):
        is_known = int(query["resourceVersion"][0]) <= self._cluster.version
        return self._open(query, queue) if is_known else 200


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cluster: cluster.put("kept", size=9), id="a change"),
        pytest.param(lambda cluster: cluster.put("new"), id="a creation"),
        pytest.param(lambda cluster: cluster.delete("kept"), id="a deletion"),
        pytest.param(lambda cluster: (cluster.put("x"), cluster.delete("x")), id="a short life"),
    ],
)
@pytest.mark.parametrize("later", [0, 5, 50])
@pytest.mark.parametrize("others", [0, 150], ids=["few", "many"])
async def test_restored_server_is_noticed_when_the_watch_is_opened_again(
    cluster, witness, reflect, change, later, others
):
    """Whether or not it has passed the version that was known by then."""
    for number in range(others):
        cluster.put(f"other{number}", size=2)
    cluster.put("kept", size=1)
    copy = Restored(cluster)
    losses = []
    async with reflect(on_history_lost=lambda: losses.append(1)):
        await asyncio.sleep(0.1)
        change(cluster)
        change_seen = cluster.version
        await asyncio.sleep(0.1)
        copy.happen()
        for number in range(later):
            cluster.put("since", size=number)
        assert (cluster.version >= change_seen) == bool(later)
        await asyncio.sleep(5)
        expected = {f"default/other{number}": 2 for number in range(others)}
        expected |= {"default/kept": 1} | ({"default/since": later - 1} if later else {})
        assert sizes(witness) == expected
        cluster.put("fresh")
        await asyncio.sleep(1)
        assert sizes(witness) == {**expected, "default/fresh": 0}
    assert losses == [1]


async def test_restored_server_without_objects_is_noticed(cluster, witness, reflect):
    copy = Restored(cluster)
    async with reflect():
        cluster.version += 20
        cluster.bookmark()
        await asyncio.sleep(0.1)
        copy.happen()
        cluster.put("w")
        await asyncio.sleep(5)
        assert list(witness.view) == ["default/w"]


@pytest.mark.parametrize(("others", "checks"), [(0, 10), (150, 20)], ids=["few", "many"])
async def test_outage_of_a_server_with_its_history_costs_no_list(cluster, reflect, others, checks):
    losses = []
    for number in range(others):
        cluster.put(f"other{number}")
    cluster.put("a")
    async with reflect(on_history_lost=lambda: losses.append(1)):
        for number in range(10):
            await asyncio.sleep(100)
            cluster.put("a", size=number)
            cluster.put("b", size=number)
            cluster.delete("b")
            await asyncio.sleep(0.1)
            cluster.end_streams(Unavailable(0, "AnswerLost", "reset"))
            cluster.put("c", size=number)
        await asyncio.sleep(10)
    assert sum("watch" not in path for _, path in cluster.requests) == 1
    assert len(cluster.checks) == checks
    assert not losses


async def test_others_may_ask_for_a_new_list(cluster, witness, reflect):
    async with reflect() as reflector:
        await asyncio.sleep(10)
        cluster.streams.clear()
        cluster.put("unseen")
        reflector.relist()
        reflector.relist()
        await asyncio.sleep(0.1)
        assert list(witness.view) == ["default/unseen"]
        reflector.relist()  # just done
        await asyncio.sleep(0.1)
    assert sum("watch" not in path for _, path in cluster.requests) == 2


async def test_others_may_end_the_pause_before_a_new_list(cluster, witness, reflect):
    cluster.answers.extend(Unavailable(0, "AnswerLost", "reset") for _ in range(6))
    cluster.put("w")
    async with reflect(wait=False) as reflector:
        await asyncio.sleep(40)
        assert not reflector.synced
        cluster.answers.clear()
        reflector.relist()
        await asyncio.sleep(0.1)
        assert list(witness.view) == ["default/w"]


# -- silence --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [60, 121, 181])
async def test_bookmarks_keep_a_quiet_watch_open(cluster, reflect, caplog, seconds):
    async with reflect():
        for _ in range(20):
            await asyncio.sleep(seconds)
            cluster.bookmark()
    assert len(cluster.requests) == 2
    assert not caplog.records


async def test_silent_watch_is_opened_again_without_a_warning(cluster, reflect, caplog):
    cluster.put("w")
    async with reflect():
        await asyncio.sleep(1300)
    opened = [at for at, path in cluster.requests if "watch" in path]
    assert opened == [0, 240, 480, 720, 960, 1200]
    assert len(cluster.checks) == 5
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


# -- what the state of a watch says ---------------------------------------------------------------


async def test_state_knows_the_last_contact(cluster, clock, reflect):
    async with reflect() as reflector:
        state = reflector.state
        await asyncio.sleep(10)
        assert state.contact_at == 0
        cluster.put("w")
        await asyncio.sleep(5)
        assert state.contact_at == 10
        cluster.bookmark()
        await asyncio.sleep(5)
        assert state.contact_at == 15


async def test_refused_watch_fails_until_one_is_open_whatever_lists_say(
    cluster, witness, reflect, caplog
):
    async with reflect() as reflector:
        state = reflector.state
        await asyncio.sleep(10)
        cluster.refuses_watches = True
        cluster.end_streams()
        await asyncio.sleep(300)
        assert sum("watch" not in path for _, path in cluster.requests) > 1
        assert state.failing_seconds(310) == pytest.approx(300, abs=2)
        assert "403" in state.problem
        cluster.refuses_watches = False
        cluster.put("w")
        await asyncio.sleep(100)
        assert (state.failing_since, state.failing_seconds(410)) == (None, 0)
        assert list(witness.view) == ["default/w"]
    told = [(r.levelname, r.message) for r in caplog.records if r.levelno >= logging.INFO]
    assert told == [("WARNING", "list or watch failed"), ("WARNING", "watch works again")]
