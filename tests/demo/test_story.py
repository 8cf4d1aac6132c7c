from __future__ import annotations

import io
import re

import pytest

from ksched.demo import fleet
from ksched.demo.result import Outcome, summary
from ksched.demo.show import SETTLING, Options, show
from ksched.demo.story import Story
from ksched.testing import cluster
from ksched.testing.virtual_time import run

SMALL = Options(nodes=12, pods=40, once=True, port=None)


def play(options: Options) -> tuple[Outcome, list[str]]:
    lines = io.StringIO()
    return run(show(options, lines=lines)), lines.getvalue().splitlines()


@pytest.fixture(scope="module")
def small() -> tuple[Outcome, list[str]]:
    return play(SMALL)


def test_every_pod_ends_on_a_node_but_the_one_that_wants_a_tape_drive(
    small: tuple[Outcome, list[str]],
) -> None:
    ended, _ = small
    [left] = [pod for pod in ended.pods if pod.node is None]
    assert (left.namespace, left.name) == ("data", "archive")
    assert left.reason is not None
    assert re.match(r"0/\d+ nodes are available: .*didn't match Pod's node aff", left.reason)
    assert {pod.phase for pod in ended.pods if pod.node} == {"Running", "Succeeded"}
    assert {pod.node for pod in ended.pods if pod.node and pod.phase == "Running"} <= {*ended.nodes}


def test_the_story_is_told_in_order(small: tuple[Outcome, list[str]]) -> None:
    _, lines = small
    captions = [line.partition("== ")[2] for line in lines if " == " in line]
    for wanted in (
        "register",
        "rolls in",
        "SSD",
        "Spot",
        "nvidia.com/gpu",
        "accelerator",
        "gate",
        "gang",
        "flood",
    ):
        while wanted not in captions[0]:
            del captions[0]
    assert captions[-1] == SETTLING


def test_the_gang_is_placed_together(small: tuple[Outcome, list[str]]) -> None:
    _, lines = small
    times = {line.split("s  ")[0] for line in lines if "ml/trainer" in line and "->" in line}
    assert len(times) == 1


def test_the_workers_of_a_pod_group_wait_without_nodes_and_are_placed_at_once(
    small: tuple[Outcome, list[str]],
) -> None:
    ended, lines = small
    times = [float(line.split("s  ")[0]) for line in lines if "ml/worker" in line and "->" in line]
    [arrival] = [
        float(line.partition("s")[0])
        for line in lines
        if "== The last three arrive: all e" in line
        if "one decision" in line
    ]
    assert len(times) == 8
    assert len(set(times)) == 1
    assert times[0] >= arrival
    workers = [pod for pod in ended.pods if pod.name.startswith("worker-")]
    assert {pod.phase for pod in workers} == {"Succeeded"}


def test_the_big_pod_goes_to_the_node_that_joined_for_it(small: tuple[Outcome, list[str]]) -> None:
    ended, lines = small
    [reason, *_] = [line for line in lines if "data/warehouse unschedulable" in line]
    assert "Insufficient cpu" in reason
    [warehouse] = [pod for pod in ended.pods if pod.name == "warehouse"]
    assert warehouse.node in ended.nodes
    assert warehouse.node not in {node.obj().metadata.name for node in fleet.fleet(SMALL.nodes)}


def test_taints_and_extended_resources_are_respected(small: tuple[Outcome, list[str]]) -> None:
    ended, _ = small
    pools = {node.obj().metadata.name: node.obj() for node in fleet.fleet(SMALL.nodes)}
    for pod in ended.pods:
        if pod.node in pools:
            pool = pools[pod.node].metadata.labels[fleet.POOL]
            assert (pool == "gpu") == pod.name.startswith("inference"), pod
            assert (pool == "spot") == pod.name.startswith("batch"), pod


def test_claims_get_the_devices_of_large_nodes(small: tuple[Outcome, list[str]]) -> None:
    ended, lines = small
    encoders = [pod for pod in ended.pods if pod.name.startswith("encoder")]
    assert len(encoders) == fleet.accelerators(SMALL.nodes) + 2
    assert {pod.phase for pod in encoders} == {"Succeeded"}
    large = {
        node.obj().metadata.name
        for node in fleet.fleet(SMALL.nodes)
        if node.obj().metadata.labels[fleet.POOL] == "large"
    }
    assert {pod.node for pod in encoders} == large
    waiting = [line for line in lines if "ml/encoder" in line and "unschedulable" in line]
    assert any("cannot allocate all claims" in line for line in waiting)


def test_the_same_seed_ends_the_same_way(small: tuple[Outcome, list[str]]) -> None:
    again, _ = play(SMALL)
    assert again.pods == small[0].pods
    other, _ = play(Options(nodes=12, pods=40, once=True, port=None, seed=1))
    assert other.pods != small[0].pods


def test_the_smallest_fleet_has_every_kind_of_machine() -> None:
    assert {*fleet.pools(fleet.FEWEST_NODES)} == {*fleet.MACHINES} - {"giant"}
    ended, _ = play(Options(nodes=fleet.FEWEST_NODES, pods=1, once=True, port=None))
    assert "archive" in [pod.name for pod in ended.pods if pod.reason]


async def test_a_story_goes_on_when_the_reader_takes_away_what_it_needs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster() as c:
        story = Story(c, lambda caption: None, nodes=6, pods=10)
        await story.attempt(story.low_tide)
        assert "the story stumbled" in caplog.text


def test_a_reader_who_leaves_ends_the_demo() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            if "rolls in" in text:
                raise BrokenPipeError
            return super().write(text)

    options = Options(nodes=6, pods=10, once=False, port=None)
    ended = run(show(options, lines=Closed()))
    assert len(ended.nodes) == 6
    assert len(ended.pods) < 10


def test_the_summary_names_who_waits_and_why(small: tuple[Outcome, list[str]]) -> None:
    text = summary(small[0])
    assert "1 waiting" in text
    assert "data/archive: 0/" in text
