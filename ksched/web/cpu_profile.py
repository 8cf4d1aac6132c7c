"""Where threads spend their CPU time, found by looking at their stacks a hundred times a second.

A thread of its own looks, so that it sees what keeps the event loop busy. What a thread has
computed since the last look, by its own clock in the kernel, counts for the stack that it has now;
threads that wait have computed nothing and are not looked at. Without the interpreter lock the
profiler cannot look: a long call of C code counts as a whole for the line that it returns to. Other
code is made to release the lock sooner than usual while a profile is taken; the steps of the event
loop are about as long as the usual interval, and would seem to end wherever they wait.

Only codes and line numbers are kept, no frame and so no variable. Nothing runs unless it is asked
for.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import CodeType, FrameType
from typing import Final, NamedTuple

from ksched.clock import stopwatch
from ksched.thread_turns import SHORT_TURNS
from ksched.web.profile_encoding import Frame, Profile, Sample, ValueType

PERIOD_NANOS: Final = 10_000_000
MAX_DEPTH: Final = 128
"""Frames of a stack that are kept, from the innermost one."""
MAX_STACKS: Final = 10_000
"""Different stacks; what comes later counts for ``FURTHER_STACKS``."""
FURTHER_STACKS: Final = "(further stacks)"

_NANOS: Final = 1_000_000_000
_TYPES: Final = ValueType("samples", "count"), ValueType("cpu", "nanoseconds")

Line = tuple[CodeType, int]
Stack = tuple[Line, ...]


class CpuProfile(NamedTuple):
    """CPU time by thread and stack."""

    began: float
    seconds: float
    stacks: dict[tuple[str, Stack], list[int]]
    """Number of samples and nanoseconds."""
    modules: dict[CodeType, str]

    def profile(self) -> Profile:
        """Return it for the encoder."""
        return Profile(
            types=_TYPES,
            samples=self._samples(),
            time_nanos=int(self.began * _NANOS),
            duration_nanos=int(self.seconds * _NANOS),
            period=PERIOD_NANOS,
        )

    def _samples(self) -> Iterator[Sample]:
        for (thread, stack), values in self.stacks.items():
            frames = [frame_of(code, line, self.modules[code]) for code, line in stack]
            found = frames or [Frame(FURTHER_STACKS, "", 0, 0)]
            yield Sample(found, values, {"thread": thread})


class Sampler:
    """Looks at all threads but its own; ``wall`` is the time of day."""

    def __init__(self, seconds: float, wall: Callable[[], float]) -> None:
        self._seconds, self._wall = seconds, wall
        self._stopped = threading.Event()
        self._used: dict[int, int] = {}
        self._stacks: dict[tuple[str, Stack], list[int]] = {}
        self._modules: dict[CodeType, str] = {}

    def stop(self) -> None:
        """End ``run`` before its time."""
        self._stopped.set()

    def run(self) -> CpuProfile:
        """Look until the time is over; blocks the thread that calls it."""
        wall, began = self._wall(), stopwatch()
        SHORT_TURNS.begin()
        try:
            self._computing()
            while (left := self._seconds - (stopwatch() - began)) > 0:
                if self._stopped.wait(min(left, PERIOD_NANOS / _NANOS)):
                    break
                self._look()
        finally:
            SHORT_TURNS.end()
        return CpuProfile(wall, stopwatch() - began, self._stacks, self._modules)

    def _computing(self) -> list[tuple[threading.Thread, int]]:
        """Return the threads that have computed since the last call, and how long."""
        found, used_by = [], {}
        own = threading.get_ident()
        for thread in threading.enumerate():
            number = thread.native_id
            if number is None or thread.ident == own:
                continue
            try:
                used = time.clock_gettime_ns(cpu_clock(number))
            except OSError:
                # It has ended meanwhile.
                continue
            used_by[number] = used
            if spent := used - self._used.get(number, 0):
                found.append((thread, spent))
        self._used = used_by
        return found

    def _look(self) -> None:
        computing = self._computing()
        if not computing:
            return
        frames = sys._current_frames()
        for thread, spent in computing:
            frame = frames.get(thread.ident or 0)
            if frame is not None:
                self._count(thread.name, self._stack(frame), spent)

    def _stack(self, frame: FrameType | None) -> Stack:
        stack: list[Line] = []
        while frame is not None and len(stack) < MAX_DEPTH:
            code = frame.f_code
            if code not in self._modules:
                self._modules[code] = module_of(frame)
            stack.append((code, frame.f_lineno or 0))
            frame = frame.f_back
        return tuple(stack)

    def _count(self, thread: str, stack: Stack, spent: int) -> None:
        values = self._stacks.get((thread, stack))
        if values is None:
            if len(self._stacks) >= MAX_STACKS:
                stack = ()
            values = self._stacks.setdefault((thread, stack), [0, 0])
        values[0] += 1
        values[1] += spent


async def cpu_profile(seconds: float, wall: Callable[[], float]) -> CpuProfile:
    """Take a profile; ends with the caller, however that ends."""
    sampler = Sampler(seconds, wall)
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="profiler")
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, sampler.run)
    finally:
        sampler.stop()
        executor.shutdown(wait=False)


def has_cpu_clocks() -> bool:
    """Whether the kernel has a clock for each thread that any other thread may read."""
    return sys.platform == "linux"


def cpu_clock(native_id: int) -> int:
    """Return the clock of a thread, as Linux numbers them; one that has ended is an ``OSError``.

    ``time.pthread_getcpuclockid`` reads the memory of a thread, which may have been freed.
    """
    return ~native_id << 3 | 6


def frame_of(code: CodeType, line: int, module: str) -> Frame:
    name = f"{module}.{code.co_qualname}" if module else code.co_qualname
    return Frame(name, code.co_filename, code.co_firstlineno, line)


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
