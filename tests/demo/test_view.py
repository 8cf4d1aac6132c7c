from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from rich.console import Console

from ksched.demo.gang_permit import GANG, SIZE, GangPermit
from ksched.demo.heat_map import NodeCell, heat_map
from ksched.demo.panels import WaitingGroup, queue_lines, waiting_groups, waiting_lines
from ksched.demo.scoreboard import NOTICE_SECONDS, Scoreboard
from ksched.demo.screen import FRAME_SECONDS, Screen, View, layout
from ksched.demo.story import Story
from ksched.queue.places import Statistics
from ksched.testing import Cluster, cluster, make_node, make_pod
from ksched.testing.virtual_time import VirtualClock

SIZES = [(80, 24), (100, 30), (120, 40), (200, 50), (60, 16), (40, 10), (20, 6)]


@asynccontextmanager
async def showing(nodes: int = 9) -> AsyncIterator[tuple[Cluster, View, Scoreboard]]:
    """A cluster in which pods run, wait for room, for a gate and for their gang."""
    board = Scoreboard(VirtualClock())
    plugins = {GangPermit.name: GangPermit}
    async with cluster(plugins=plugins, observer=board) as c:
        c.scheduler.decisions.observe(board.decided)
        story = Story(c, board.say, nodes=nodes, pods=10)
        for _ in range(nodes):
            await story.add_node()
        await c.create(
            *(make_pod(f"web-{number}").req(cpu="1").label(app="web") for number in range(6)),
            make_pod("big").req(cpu="100").label(app="big"),
            make_pod("gated").gate("example.com/gate"),
            make_pod("trainer").req(cpu="1").label({GANG: "g", SIZE: "2", "app": "trainer"}),
        )
        await c.settle()
        board.say("Something is going on, and it takes a whole sentence of words to explain it.")
        yield c, View(c.scheduler, board, story, c.clock, ["KUBECONFIG=/tmp/x"]), board


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_regions_lie_on_the_screen_and_do_not_overlap(width: int, height: int) -> None:
    taken: set[tuple[int, int]] = set()
    for region in layout(width, height).values():
        cells = {
            (x, y)
            for x in range(region.x, region.x + region.width)
            for y in range(region.y, region.y + region.height)
        }
        assert not cells & taken
        assert all(x < width and y < height for x, y in cells)
        taken |= cells
    if height >= 8:
        assert len(taken) == width * height


@pytest.mark.parametrize(("width", "height"), [size for size in SIZES if size >= (60, 16)])
async def test_every_panel_fits_its_region(width: int, height: int) -> None:
    async with showing() as (_, view, _):
        for name, region in layout(width, height).items():
            lines = view.draws[name](region.width, region.height)
            assert len(lines) <= region.height, name
            for line in lines:
                assert line.cell_len <= region.width, (name, line.plain)


@pytest.mark.parametrize("color_system", ["truecolor", "256", None])
async def test_the_screen_shows_what_the_scheduler_does(color_system: str | None) -> None:
    async with showing() as (_, view, _):
        text = await shown(view, color_system)
    for wanted in (
        "Something is going on",
        "default/web-0",
        "nodes fit",
        "unschedulable",
        "0/9 nodes are available",
        "waiting for scheduling gates: example.com/gate",
        "at Permit",
        "zone-a",
        "KUBECONFIG=/tmp/x",
    ):
        assert wanted in text


@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_a_screen_of_any_size_is_shown(width: int, height: int) -> None:
    async with showing() as (_, view, _):
        assert "decisions" in await shown(view, None, width, height) or height < 8


async def test_the_screen_leaves_the_terminal_as_it_was() -> None:
    async with showing() as (_, view, _):
        text = await shown(view, "truecolor")
    assert text.index("\x1b[?1049h") < text.index("\x1b[?1049l")
    assert text.endswith("\x1b[?25h")


async def test_a_screen_on_which_nothing_changes_is_not_written_again() -> None:
    async with showing() as (c, view, _):
        console = a_console(None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Screen(console, view, c.clock).run)
            await c.clock.sleep(20.05)
            assert isinstance(console.file, io.StringIO)
            before = len(console.file.getvalue())
            await c.clock.sleep(FRAME_SECONDS)
            frame = console.file.getvalue()[before:]
            tasks.cancel_scope.cancel()
    assert len(frame) < 120 * 3, frame


async def test_a_screen_is_drawn_anew_when_its_size_changes() -> None:
    async with showing() as (c, view, _):
        console = a_console(None)
        assert isinstance(console.file, io.StringIO)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Screen(console, view, c.clock).run)
            await c.clock.sleep(1)
            before = len(console.file.getvalue())
            console.size = (90, 30)
            await c.clock.sleep(1)
            tasks.cancel_scope.cancel()
        frame = console.file.getvalue()[before:]
    assert "\x1b[2J" in frame
    assert "scheduling queue" in frame


async def test_a_warning_is_shown_for_a_while() -> None:
    async with showing() as (c, view, board):
        board.warn("something is odd")
        assert view.draws["footer"](80, 1)[0].plain == " something is odd"
        await c.advance(NOTICE_SECONDS)
        assert "quit" in view.draws["footer"](80, 1)[0].plain


async def test_a_paused_story_says_so() -> None:
    board = Scoreboard(VirtualClock())
    async with cluster() as c:
        story = Story(c, board.say, nodes=6, pods=10)
        view = View(c.scheduler, board, story, c.clock, "")
        assert "PAUSED" not in view.draws["header"](100, 2)[0].plain
        story.pause()
        assert "PAUSED" in view.draws["header"](100, 2)[0].plain


async def test_a_paused_story_does_not_go_on() -> None:
    board = Scoreboard(VirtualClock())
    async with cluster() as c, anyio.create_task_group() as tasks:
        story = Story(c, board.say, nodes=6, pods=10)
        tasks.start_soon(story.tell)
        await c.advance(1)
        story.pause()
        known = len(c.nodes())
        assert 0 < known < 6
        await c.advance(60)
        assert len(c.nodes()) == known
        story.pause()
        await c.advance(3)
        assert len(c.nodes()) == 6
        tasks.cancel_scope.cancel()


async def test_keys_add_a_node_and_a_burst() -> None:
    board = Scoreboard(VirtualClock())
    async with cluster() as c:
        story = Story(c, board.say, nodes=6, pods=10)
        await story.add_node()
        await story.burst(12)
        await c.settle()
        assert len(c.nodes()) == 1
        assert sum(1 for pod in c.pods() if pod["spec"].get("nodeName")) == 12


# -- parts --------------------------------------------------------------------------------------


def cells(zones: int, per_zone: int) -> list[NodeCell]:
    return [
        NodeCell(f"node-{zone}-{number:02}", f"zone-{zone}", " ", 0.5, 0.25, 7, False, 0.0)
        for zone in range(zones)
        for number in range(per_zone)
    ]


@pytest.mark.parametrize("per_zone", [1, 12, 40, 500, 5000])
@pytest.mark.parametrize(("width", "height"), [(46, 6), (80, 12), (160, 15), (20, 3)])
def test_a_heat_map_of_any_number_of_nodes_fits(per_zone: int, width: int, height: int) -> None:
    lines = heat_map(cells(3, per_zone), width, height)
    assert 0 < len(lines) <= height
    assert all(line.cell_len <= width for line in lines)


def test_a_heat_map_names_every_zone() -> None:
    text = "\n".join(line.plain for line in heat_map(cells(3, 12), 80, 12))
    assert all(f"zone-{zone}" in text for zone in range(3))


def test_a_cordoned_node_is_marked() -> None:
    cell = cells(1, 1)[0]._replace(is_cordoned=True)
    assert "╳" in heat_map([cell], 40, 4)[1].plain


def test_bars_of_the_queue_grow_with_the_number_of_pods() -> None:
    few, many = (
        queue_lines(Statistics(0, 0, count, 0, 0, 0, 0), 0, [], 40, 6)[2].plain.count("█")
        for count in (5, 20)
    )
    assert 0 < few < many


@pytest.mark.parametrize("height", [1, 3, 8])
def test_waiting_groups_that_do_not_fit_are_counted(height: int) -> None:
    groups = [WaitingGroup(f"app-{n}", "unschedulable", 1, 0.0, "no room " * 20) for n in range(5)]
    lines = [line.plain for line in waiting_lines(groups, 10.0, 80, height)]
    assert len(lines) <= height
    assert sum("app-" in line for line in lines) == min(height - 1, 5) if height < 5 else 5
    assert ("more" in lines[-1]) == (height < 5)


def test_a_reason_that_is_too_long_is_told_without_what_preemption_found() -> None:
    message = (
        "0/9 nodes are available: 9 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/9 nodes are available: 9 Preemption is not helpful for scheduling."
    )
    group = WaitingGroup("web", "unschedulable", 1, 0.0, message)
    lines = waiting_lines([group], 1.0, 100, 2)
    text = " ".join(line.plain.strip() for line in lines)
    assert text.endswith("9 Insufficient cpu. no new claims to deallocate")


async def test_pods_of_an_application_wait_as_one_group() -> None:
    board = Scoreboard(VirtualClock())
    async with cluster(nodes=[make_node("n")], observer=board) as c:
        c.scheduler.decisions.observe(board.decided)
        await c.create(
            *(make_pod(f"r{number}").req(cpu="9").label(app="report") for number in range(3))
        )
        await c.advance(7)
        [group] = waiting_groups(c.scheduler, board)
    assert (group.app, group.place, group.pods, group.since) == ("report", "unschedulable", 3, 0.0)
    assert group.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")


def a_console(color_system: str | None, width: int = 120, height: int = 40) -> Console:
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        color_system=color_system,  # type: ignore[arg-type]
        width=width,
        height=height,
        _environ={},
    )


async def shown(view: View, color_system: str | None, width: int = 120, height: int = 40) -> str:
    """What is written to a terminal in a second."""
    console = a_console(color_system, width, height)
    with anyio.move_on_after(1.0):
        await Screen(console, view, VirtualClock()).run()
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
