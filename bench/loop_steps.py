"""Which steps of an event loop take long: from one await to the next, in CPU time of the thread.

CPU time, so that a busy machine makes no step longer. Only asyncio's own loop shows its steps to
Python; uvloop runs the same ones.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.latency import quantile
from ksched.clock import cpu_seconds

LIMITS_MS = (2, 5, 10, 15, 20)
COLLECTION = "(garbage collection, part of the others)"


class LoopSteps:
    """The steps of the event loop that runs in this thread, while ``recorded``."""

    def __init__(self) -> None:
        self.turns: list[float] = []
        """Seconds of each turn of the loop: what a timer that falls due may have to wait."""
        self.steps: dict[str, list[float]] = defaultdict(list)
        """Seconds of each step, by where it began."""

    @contextmanager
    def recorded(self) -> Iterator[None]:
        # Names that asyncio does not promise: untyped.
        handles: Any = asyncio.Handle
        loops: Any = asyncio.BaseEventLoop
        run, run_once = handles._run, loops._run_once
        own, turn, collecting = threading.get_ident(), 0.0, 0.0

        def run_step(handle: Any) -> None:
            nonlocal turn
            if threading.get_ident() != own:
                run(handle)
                return
            where = place_of(handle._callback)
            began = cpu_seconds()
            run(handle)
            took = cpu_seconds() - began
            turn += took
            self.steps[where].append(took)

        def run_turn(loop: Any) -> None:
            nonlocal turn
            run_once(loop)
            if threading.get_ident() == own:
                self.turns.append(turn)
                turn = 0.0

        def collected(phase: str, info: dict[str, int]) -> None:
            nonlocal collecting
            if phase == "start":
                collecting = cpu_seconds()
            else:
                name = f"{COLLECTION} {info['generation']}"
                self.steps[name].append(cpu_seconds() - collecting)

        handles._run, loops._run_once = run_step, run_turn
        gc.callbacks.append(collected)
        try:
            yield
        finally:
            handles._run, loops._run_once = run, run_once
            gc.callbacks.remove(collected)

    def render(self, lines: int) -> str:
        """The longest turns, and the places where the longest steps began."""
        turns = sorted(1000 * seconds for seconds in self.turns)
        above = ", ".join(f"{sum(one > ms for one in turns)} above {ms}" for ms in LIMITS_MS)
        text = [
            f"{len(turns)} turns, {sum(turns):.0f} ms: {above} ms; "
            f"99 % of the time in turns of at most {_by_time(turns, 0.99):.1f} ms; "
            f"longest {' '.join(f'{one:.1f}' for one in turns[:-9:-1])}",
            f"{'max ms':>8} {'p99 ms':>8} {'all ms':>8} {'steps':>8}  begun at",
        ]
        ranked = sorted(self.steps.items(), key=lambda one: -max(one[1]))
        for where, seconds in ranked[:lines]:
            taken = sorted(1000 * one for one in seconds)
            text.append(
                f"{taken[-1]:8.2f} {quantile(taken, 0.99):8.2f} {sum(taken):8.1f} {len(taken):8}"
                f"  {where}"
            )
        return "\n".join(text)


def _by_time(ordered: list[float], fraction: float) -> float:
    """How long the turn is at most in which a moment falls, for a fraction of all moments."""
    rest = fraction * sum(ordered)
    for one in ordered:
        rest -= one
        if rest <= 0:
            return one
    return 0.0


def place_of(callback: Any) -> str:
    """Where a step begins: the coroutines of a task, from the outermost to the one that waits."""
    task = getattr(callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return str(getattr(callback, "__qualname__", repr(type(callback))))
    names, line = [], 0
    inner: Any = task.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "ag_frame", None)
        if frame is not None:
            names.append(inner.__qualname__)
            line = frame.f_lineno
        inner = getattr(inner, "cr_await", None) or getattr(inner, "ag_await", None)
    return f"{' > '.join(names[-3:])}:{line}"
