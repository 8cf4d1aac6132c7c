"""The fuzzer of admissible objects: a few episodes, and that it notices what it is there for."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from ksched.testing import virtual_time
from lab.fuzz.__main__ import main
from lab.fuzz.episode import Episode, Find
from lab.fuzz.stalls import StallMeter, measured_steps
from lab.fuzz.twin import disagreement
from lab.reference import Decision, Rejection

SEEDS = [1, 4, 6, 8]


@pytest.mark.parametrize("seed", SEEDS, ids="seed {}".format)
def test_hostile_objects_do_no_harm(seed: int) -> None:
    episode = Episode(seed)
    episode.run()
    assert episode.counts["admitted"] > 10
    assert episode.counts["compared"] > 0


def test_the_same_seed_makes_the_same_objects() -> None:
    one, two = Episode(4, steps=15), Episode(4, steps=15)
    one.run()
    two.run()
    assert one.history == two.history


def test_an_error_in_the_log_is_a_find() -> None:
    episode = Episode(1, steps=3)

    async def complain(c: object) -> None:
        logging.getLogger("ksched.cache").error("this is odd", extra={"err": "very"})

    episode._actions = lambda: {complain: 1}  # type: ignore[method-assign]
    with pytest.raises(Find, match="this is odd: very"):
        episode.run()


def test_a_step_that_computes_for_long_is_measured_under_its_task() -> None:
    async def work() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    async def both() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work(), name="busy")
            tasks.create_task(work(), name="driver")

    meter = StallMeter({"driver"})
    with measured_steps(meter):
        virtual_time.run(both())
    assert meter.longest["busy"] >= 0.02
    assert "driver" not in meter.longest


NOWHERE = Decision({"n1": Rejection("P", "Unschedulable", ("too small",))}, {})
SOMEWHERE = Decision({}, {"n1": {"P": 3}, "n2": {"P": 4}})


@pytest.mark.parametrize(
    ("expected", "node_name", "message", "complaint"),
    [
        pytest.param(SOMEWHERE, "n2", "", "", id="a best node"),
        pytest.param(SOMEWHERE, "n1", "", "chose among ['n2']", id="a worse node"),
        pytest.param(SOMEWHERE, "", "no", "not placed: no", id="not placed"),
        pytest.param(NOWHERE, "n1", "", "the reference says: 0/1", id="placed against the rules"),
        pytest.param(NOWHERE, "", "0/1 nodes are available: 1 too small.", "", id="same reasons"),
        pytest.param(
            NOWHERE,
            "",
            "0/1 nodes are available: 1 too small. preemption: no.",
            "",
            id="what PostFilter adds is left out",
        ),
        pytest.param(NOWHERE, "", "0/1 no", "said '0/1 no'", id="other reasons"),
    ],
)
def test_disagreement(expected: Decision, node_name: str, message: str, complaint: str) -> None:
    found = disagreement(expected, node_name, message)
    assert complaint in found if complaint else not found


def test_one_episode_can_be_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--episode", "1", "--steps", "5"]) == 0
    assert "0 finds" in capsys.readouterr().out
