"""How long the event loop was kept busy by one step of one task."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.request import Request
from ksched.apiserver.watching import Watch
from ksched.testing.virtual_time import VirtualLoop
from ksched.transport import Response


@dataclass
class StallMeter:
    """CPU seconds of the longest step of any task but those that are left out, by task name.

    CPU time of the thread, so that a busy machine does not look like a stall.
    """

    left_out: set[str] = field(default_factory=set)
    longest: dict[str, float] = field(default_factory=dict)
    served: float = 0.0
    """Seconds that the embedded API server took within the current step."""

    @property
    def worst(self) -> tuple[float, str]:
        return max(((seconds, name) for name, seconds in self.longest.items()), default=(0.0, ""))

    def note(self, handle: asyncio.Handle, seconds: float) -> None:
        name = _task_name(handle)
        if name not in self.left_out and seconds > self.longest.get(name, 0.0):
            self.longest[name] = seconds


class WorkingLoop(VirtualLoop):
    """A virtual loop on which computing takes time: work in time slices is cut as on any other."""

    def __init__(self) -> None:
        self._began = time.thread_time()
        super().__init__()

    def time(self) -> float:
        return super().time() + time.thread_time() - self._began


@contextmanager
def measured_steps(meter: StallMeter) -> Iterator[None]:
    """Measure every callback of every loop in this process during the block.

    What the embedded API server does on behalf of a task is not that task's work, nor are pauses of
    the garbage collector, which has this process's heap to look at: the daemon tunes its own.
    """
    run = asyncio.Handle._run
    handle_request = ApiServer.handle

    def timed(handle: asyncio.Handle) -> None:
        meter.served = 0.0
        began = time.thread_time()
        run(handle)
        meter.note(handle, time.thread_time() - began - meter.served)

    def served(server: ApiServer, request: Request) -> Response | Watch:
        began = time.thread_time()
        try:
            return handle_request(server, request)
        finally:
            meter.served += time.thread_time() - began

    gc.collect()
    gc.disable()
    try:
        with (
            patch.object(asyncio.Handle, "_run", timed),
            patch.object(ApiServer, "handle", served),
        ):
            yield
    finally:
        gc.enable()


def assert_no_stall(run: Callable[[], object], seconds: float) -> None:
    """Run something, if need be three times: a step takes longer while others use the core."""
    for _ in range(3):
        meter = StallMeter()
        with measured_steps(meter):
            run()
        if meter.worst[0] < seconds:
            return
    raise AssertionError(f"steps of more than {seconds} seconds: {meter.longest}")


def _task_name(handle: asyncio.Handle) -> str:
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    return owner.get_name() if isinstance(owner, asyncio.Task) else "callback"
