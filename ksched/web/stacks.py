"""What the tasks and threads of the process do now: their stacks, without any variable.

kube-scheduler: its goroutines, at /debug/pprof/goroutine.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, NamedTuple

from ksched.web.cpu_profile import MAX_DEPTH, frame_of, module_of
from ksched.web.profile_encoding import Frame, Profile, Sample, ValueType

_TYPES: Final = (ValueType("goroutine", "count"),)
_NANOS: Final = 1_000_000_000
# Of a coroutine, a generator and an asynchronous generator: its frame, and what it waits for.
_ATTRIBUTES: Final = (
    ("cr_frame", "cr_await"),
    ("gi_frame", "gi_yieldfrom"),
    ("ag_frame", "ag_await"),
)


class Activity(NamedTuple):
    """A task or thread, innermost frame first."""

    kind: str
    name: str
    state: str
    stack: tuple[Frame, ...]


def activities() -> Iterator[Activity]:
    """Yield all threads and all tasks of the running loop; each stack is of when it is yielded."""
    current, tasks = asyncio.current_task(), asyncio.all_tasks()
    frames = sys._current_frames()
    for thread in threading.enumerate():
        stack = _stack_of_thread(frames.get(thread.ident or 0))
        yield Activity("thread", thread.name, "daemon" if thread.daemon else "", stack)
    del frames
    for task in tasks:
        if not task.done():
            state = "running" if task is current else "waiting"
            yield Activity("task", task.get_name(), state, _stack_of_task(task))


def goroutine_profile(wall: float) -> Profile:
    """The same for ``go tool pprof``: each counts one."""
    samples = (
        Sample(one.stack, (1,), {"kind": one.kind, "name": one.name}) for one in activities()
    )
    return Profile(_TYPES, samples, time_nanos=int(wall * _NANOS))


def one_by_one() -> Iterator[bytes]:
    """Yield each with its name and state."""
    for one in activities():
        state = f" [{one.state}]" if one.state else ""
        yield f"{one.kind} {one.name!r}{state}:\n{_lines(one.stack)}\n".encode(errors="replace")


def grouped() -> Iterator[bytes]:
    """Yield each stack once, with the number of those that have it; the most frequent first."""
    counts: dict[tuple[str, tuple[Frame, ...]], int] = {}
    for one in activities():
        key = one.kind, one.stack
        counts[key] = counts.get(key, 0) + 1
        yield b""
    yield f"tasks and threads: total {sum(counts.values())}\n\n".encode()
    for (kind, stack), count in sorted(counts.items(), key=lambda item: -item[1]):
        yield f"{count} @ {kind}\n{_lines(stack)}\n".encode(errors="replace")


def _lines(stack: tuple[Frame, ...]) -> str:
    return "".join(f"{one.function}\n\t{one.file}:{one.line}\n" for one in stack)


def _stack_of_thread(frame: FrameType | None) -> tuple[Frame, ...]:
    stack: list[Frame] = []
    while frame is not None and len(stack) < MAX_DEPTH:
        stack.append(_frame(frame))
        frame = frame.f_back
    return tuple(stack)


def _stack_of_task(task: asyncio.Task[Any]) -> tuple[Frame, ...]:
    """Return the frames from the coroutine of a task to the innermost that is waited for."""
    stack: list[Frame] = []
    waiting: Any = task.get_coro()
    while waiting is not None and len(stack) < MAX_DEPTH:
        for frame_name, next_name in _ATTRIBUTES:
            if hasattr(waiting, frame_name):
                frame = getattr(waiting, frame_name)
                waiting = getattr(waiting, next_name, None)
                break
        else:
            break
        if frame is not None:
            stack.append(_frame(frame))
    return tuple(reversed(stack))


def _frame(frame: FrameType) -> Frame:
    return frame_of(frame.f_code, frame.f_lineno or 0, module_of(frame))
