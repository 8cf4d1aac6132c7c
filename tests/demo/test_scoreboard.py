from __future__ import annotations

import asyncio

from ksched.demo.scoreboard import Scoreboard
from ksched.queue.places import Place
from ksched.scheduling.decisions import Decision, Result
from ksched.testing.virtual_time import VirtualClock


def decision(
    pod: str, result: Result = Result.SCHEDULED, message: str = "", seconds: float = 0.001
) -> Decision:
    node_name = "n1" if result is Result.SCHEDULED else ""
    return Decision(
        0.0, pod, pod, "default-scheduler", result, node_name, message, 1, 9, 3, seconds, seconds, 0
    )


async def test_binds_per_second_forgets_the_past() -> None:
    board = Scoreboard(VirtualClock())
    for number in range(30):
        board.decided(decision(f"p{number}"))
    assert board.binds_per_second() == 10
    assert board.bind_curve(5) == [0, 0, 0, 0, 30]
    await asyncio.sleep(3)
    assert board.binds_per_second() == 0
    assert board.bind_curve(5) == [0, 30, 0, 0, 0]


async def test_latency_is_that_of_choosing_a_node() -> None:
    board = Scoreboard(VirtualClock())
    assert board.latency() == (0.0, 0.0)
    for number in range(100):
        board.decided(decision(f"p{number}", seconds=number / 1000))
    assert board.latency() == (0.050, 0.099)


async def test_a_rejection_that_repeats_is_listed_once() -> None:
    board = Scoreboard(VirtualClock())
    for message in ("no room", "no room", "no room"):
        board.decided(decision("a", Result.UNSCHEDULABLE, message))
        board.decided(decision("b", Result.UNSCHEDULABLE, message))
    board.decided(decision("a", Result.UNSCHEDULABLE, "another reason"))
    listed = [(entry.decision.pod, entry.decision.message, entry.times) for entry in board.recent]
    assert listed == [("a", "no room", 3), ("b", "no room", 3), ("a", "another reason", 1)]
    assert board.decisions == 7


async def test_what_was_said_of_a_pod_is_forgotten_when_it_is_placed() -> None:
    board = Scoreboard(VirtualClock())
    board.decided(decision("a", Result.UNSCHEDULABLE, "no room"))
    assert board.messages == {"a": "no room"}
    board.decided(decision("a"))
    assert board.messages == {}
    assert board.landed == {"n1": 0.0}


async def test_only_ends_of_waits_count_as_wake_ups() -> None:
    board = Scoreboard(VirtualClock())
    board.moved("NodeAdd", Place.UNSCHEDULABLE, Place.ACTIVE)
    board.moved("NodeAdd", Place.UNSCHEDULABLE, Place.BACKOFF)
    board.moved("PodAdd", Place.ABSENT, Place.ACTIVE)
    board.moved("PodDeleted", Place.UNSCHEDULABLE, Place.ABSENT)
    assert board.wake_ups == {"NodeAdd": 2}
