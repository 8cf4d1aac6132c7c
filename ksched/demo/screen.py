"""The live view: a full screen that follows the scheduler without getting in its way.

The screen is cut into panels. A panel is drawn when it is due, only lines that changed are written,
and after each panel the event loop gets its turn; a panel that is expensive to draw becomes due
less often, so that the view never takes more than a small part of the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console
from rich.control import Control
from rich.region import Region
from rich.segment import Segment
from rich.text import Text

from ksched.clock import Clock, stopwatch
from ksched.demo import panels
from ksched.demo.heat_map import heat_map, legend, sample
from ksched.demo.scoreboard import Scoreboard
from ksched.demo.story import Story
from ksched.scheduling.scheduler import Scheduler

FRAME_SECONDS: Final = 0.15
LARGEST_PART: Final = 1 / 25
"""Of the time, for one panel."""

KEYS: Final = (("q", "quit"), ("p", "pause"), ("n", "node"), ("b", "burst"))

_QUEUE_WIDTH: Final = 36
_NARROW_QUEUE_WIDTH: Final = 30
_CPU_SECONDS: Final = 1.0

Draw = Callable[[int, int], list[Text]]


def layout(width: int, height: int) -> dict[str, Region]:
    """Divide the screen; what has no region is not shown."""
    caption = 2 if height >= 20 else 1
    regions = {"header": Region(0, 0, width, 2), "caption": Region(0, 2, width, caption)}
    top, body = 2 + caption, height - 3 - caption
    regions["footer"] = Region(0, height - 1, width, 1)
    if width < 60 or body < 14:
        if body >= 3:
            regions["decisions"] = Region(0, top, width, body)
        return regions
    upper = min(max(8, body * 2 // 5), 17)
    queue = _QUEUE_WIDTH if width >= 100 else _NARROW_QUEUE_WIDTH
    regions["queue"] = Region(0, top, queue, upper)
    regions["nodes"] = Region(queue, top, width - queue, upper)
    below, rest = top + upper, body - upper
    if width >= 160:
        half = width * 9 // 20
        regions["decisions"] = Region(0, below, half, rest)
        regions["waiting"] = Region(half, below, width - half, rest)
    else:
        waiting = min((rest * 2 + 4) // 5, 11)
        regions["decisions"] = Region(0, below, width, rest - waiting)
        regions["waiting"] = Region(0, below + rest - waiting, width, waiting)
    return regions


class View:
    """Draws every panel from the scheduler's current state; independent of terminals."""

    def __init__(
        self,
        scheduler: Scheduler,
        board: Scoreboard,
        story: Story,
        clock: Clock,
        hints: Sequence[str],
    ) -> None:
        self._scheduler, self._board, self._story = scheduler, board, story
        self._clock, self._hints = clock, hints
        self._cpu = 0.0
        self._cpu_mark = (stopwatch(), time.process_time())
        self.draws: dict[str, Draw] = {
            "header": self._header,
            "caption": self._caption,
            "queue": self._queue,
            "nodes": self._nodes,
            "decisions": self._decisions,
            "waiting": self._waiting,
            "footer": self._footer,
        }

    def _header(self, width: int, height: int) -> list[Text]:
        self._measure_cpu()
        minutes, seconds = divmod(int(self._board.elapsed_seconds), 60)
        paused = "PAUSED  " if self._story.is_paused else ""
        left = "ksched demo · a kube-scheduler in Python on an embedded cluster"
        return [
            panels.title_line(left, f"{paused}{minutes}:{seconds:02}", width),
            panels.numbers_line(self._scheduler, self._board, self._cpu, width),
        ]

    def _measure_cpu(self) -> None:
        now, used = stopwatch(), time.process_time()
        then, used_then = self._cpu_mark
        if now - then >= _CPU_SECONDS:
            self._cpu = (used - used_then) / (now - then)
            self._cpu_mark = (now, used)

    def _caption(self, width: int, height: int) -> list[Text]:
        story = self._story
        chapter = "∞" if story.is_over else f"{story.chapter}/{len(story.chapters)}"
        return panels.caption_lines(self._board.caption, chapter, width, height)

    def _queue(self, width: int, height: int) -> list[Text]:
        lines = panels.queue_lines(
            self._scheduler.queue.statistics(),
            len(self._scheduler.waiting),
            self._board.wake_ups.most_common(),
            width - 4,
            height - 2,
        )
        return panels.framed("scheduling queue", lines, width, height)

    def _nodes(self, width: int, height: int) -> list[Text]:
        cells = sample(self._scheduler.cache, self._board.landed, self._clock.now())
        lines = heat_map(cells, width - 4, height - 2)
        title = f"nodes: cpu, memory, pods   {legend(cells)}" if width >= 72 else "nodes"
        return panels.framed(title, lines, width, height)

    def _decisions(self, width: int, height: int) -> list[Text]:
        lines = panels.decision_lines(self._board, self._clock.now(), width - 4, height - 2)
        return panels.framed("decisions", lines, width, height)

    def _waiting(self, width: int, height: int) -> list[Text]:
        groups = panels.waiting_groups(self._scheduler, self._board)
        lines = panels.waiting_lines(groups, self._clock.now(), width - 4, height - 2)
        return panels.framed("waiting, and why", lines, width, height)

    def _footer(self, width: int, height: int) -> list[Text]:
        if self._board.notice:
            notice = Text(f" {self._board.notice}", "bold red", no_wrap=True)
            notice.truncate(width, overflow="ellipsis")
            return [notice]
        return [panels.footer_line(KEYS, self._hints, width)]


class Screen:
    """Keeps a terminal's alternate screen up to date with a view until cancelled."""

    def __init__(self, console: Console, view: View, clock: Clock) -> None:
        self._console, self._view, self._clock = console, view, clock
        self._shown: dict[tuple[int, int], list[Segment]] = {}
        self._due: dict[str, float] = {}

    async def run(self) -> None:
        size = (0, 0)
        with self._console.screen(hide_cursor=True):
            while True:
                if self._console.size != size:
                    size = self._console.size
                    self._console.control(Control.clear())
                    self._shown.clear()
                    self._due.clear()
                await self._refresh(*size)
                await self._clock.sleep(FRAME_SECONDS)

    async def _refresh(self, width: int, height: int) -> None:
        for name, region in layout(width, height).items():
            began = stopwatch()
            if began < self._due.get(name, 0.0):
                continue
            self._show(region, self._view.draws[name](region.width, region.height))
            cost = stopwatch() - began
            self._due[name] = began + cost / LARGEST_PART
            await asyncio.sleep(0)

    def _show(self, region: Region, lines: list[Text]) -> None:
        """Write the lines that differ from what is there."""
        for number in range(region.height):
            line = lines[number] if number < len(lines) else Text()
            line.truncate(region.width, pad=True)
            segments = list(line.render(self._console))
            where = (region.x, region.y + number)
            if self._shown.get(where) != segments:
                self._shown[where] = segments
                self._console.update_screen_lines([segments], *where)
