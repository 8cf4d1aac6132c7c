"""The journal of a running scheduler: takes records from the recording and writes them.

Records are encoded on the event loop, a millisecond at a time, and compressed and written in a
thread. If the disk is full or slow, records are lost, which is counted and logged, and the next
file begins with the whole state again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ksched.clock import Clock, stopwatch
from ksched.configuration.dumping import configz
from ksched.journal.encoding import Encoding, Item, is_left_out
from ksched.journal.recording import MAX_WAITING, NewFile, Recording
from ksched.journal.records import FORMAT, Header, Ready
from ksched.journal.segments import JournalTooSmall, Segments
from ksched.metrics import Metrics
from ksched.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.5
"""How old a record may be before it is on disk; a process that is killed loses that much."""
RETRY_SECONDS: Final = 10.0
SLICE: Final = 64
"""Records that are encoded before the clock is read again."""
SLICE_SECONDS: Final = 0.001
"""What encoding may take of the event loop at once."""
END_SECONDS: Final = 2.0
"""How long the end of the process may take for the rest of the journal."""
CHUNK_BYTES: Final = 1 << 20


class Journal:
    """Writes the journal of one scheduler after another into a folder.

    ``attach`` each scheduler before it watches; ``run`` while it schedules.
    """

    def __init__(
        self, folder: Path, limit_bytes: int, clock: Clock, metrics: Metrics, version: str
    ) -> None:
        self._segments = Segments(folder, limit_bytes)
        self._folder, self._clock, self._metrics = folder, clock, metrics
        self._version = version
        self._recording: Recording | None = None
        self._scheduler: Scheduler | None = None
        self._encoding = Encoding()
        self._thread: ThreadPoolExecutor | None = None
        self._lines = bytearray()
        self.is_ready = False
        """Whether the file has the whole state."""
        self._counted_drops = self._counted_bytes = 0

    def attach(self, scheduler: Scheduler) -> None:
        self._scheduler, self._recording = scheduler, Recording(scheduler, MAX_WAITING)
        scheduler.reloading.listeners.append(self._reconfigured)
        self._counted_drops = 0

    def _reconfigured(self) -> None:
        """Another configuration decides from now on, so another file begins here."""
        assert self._recording is not None
        if self._recording.is_on:
            self._recording.waiting.append(NewFile(self._header(), self._recording.start_over()))

    async def run(self) -> None:
        """Write until cancelled; never raises for what happens to the files."""
        assert self._scheduler is not None
        assert self._recording is not None
        recording, retry_at = self._recording, 0.0
        self._thread = ThreadPoolExecutor(1, "journal")
        try:
            await self._scheduler.wait_synced()
            while True:
                try:
                    if recording.is_on or self._clock.now() >= retry_at:
                        await self._write(recording)
                except JournalTooSmall as problem:
                    if not self.is_ready:
                        log.error("journal stopped, its size is too small", extra=_said(problem))
                        return
                    # Much happened at once: another file is begun.
                    recording.stop()
                except OSError as problem:
                    retry_at = self._clock.now() + RETRY_SECONDS
                    recording.stop()
                    log.error("journal cannot be written", extra=_said(problem))
                self._count(recording)
                await self._clock.sleep(FLUSH_SECONDS)
        except Exception:
            log.exception("journal stopped")
        finally:
            self._end(recording)

    def _end(self, recording: Recording) -> None:
        """Write the rest; the process waits for it, but not for a disk that hangs."""
        assert self._thread is not None
        if recording.is_on and self.is_ready:
            self._lines += self._encoding.lines(_taken(recording.waiting))
        try:
            self._thread.submit(self._finish, bytes(self._lines)).result(END_SECONDS)
        except (OSError, JournalTooSmall, TimeoutError) as problem:
            log.error("journal cannot be written", extra=_said(problem))
        recording.stop()
        self._count(recording)
        self._thread.shutdown(wait=False)
        self._lines.clear()
        self.is_ready = False

    def _finish(self, lines: bytes) -> None:
        """In the thread, after what it writes already."""
        if lines:
            self._segments.write(lines)
        self._segments.close()

    # -- writing --------------------------------------------------------------------------------

    async def _write(self, recording: Recording) -> None:
        waiting = recording.waiting
        await self._write_items(islice(_taken(waiting), len(waiting)))
        while waiting:
            new = waiting[0]
            if not isinstance(new, NewFile):
                break
            del waiting[0]
            await self._begin_file(new)
            await self._write_items(islice(_taken(waiting), len(waiting)))
        if recording.is_on and not self._segments.is_full:
            return
        # What was queued meanwhile belongs to the file that ends; then comes the state.
        self._lines += self._encoding.lines(_taken(waiting))
        if waiting:
            return
        header, state = self._header(), recording.start()
        await self._flush()
        if state is not None:
            await self._begin_file(NewFile(header, state))

    async def _begin_file(self, new: NewFile) -> None:
        stamp = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
        # What happens from now on is queued behind the state.
        self.is_ready = False
        await self._in_thread(self._segments.begin, f"{stamp}Z")
        self._encoding = Encoding()
        await self._write_items(iter([new.header]))
        await self._write_items(new.state)
        await self._write_items(iter([Ready(at=self._clock.wall())]))
        self._segments.state_is_written()
        self.is_ready = True
        log.info("journal begins a file", extra={"folder": str(self._folder)})

    def _header(self) -> Header:
        assert self._scheduler is not None
        kinds = self._scheduler.listers.required()
        return Header(
            format=FORMAT,
            ksched=self._version,
            at=self._clock.wall(),
            configuration=configz(self._scheduler.configuration),
            left_out=[str(kind.resource) for kind in kinds if is_left_out(kind)],
        )

    async def _write_items(self, items: Iterator[Item]) -> None:
        """Write items, letting the event loop run in between."""
        began, count = stopwatch(), 0
        while batch := list(islice(items, SLICE)):
            self._lines += self._encoding.lines(batch)
            count += len(batch)
            if len(self._lines) >= CHUNK_BYTES:
                await self._flush()
                began = stopwatch()
            elif stopwatch() - began >= SLICE_SECONDS:
                await asyncio.sleep(0)
                began = stopwatch()
        self._metrics.journal_records.increment(by=count)
        await self._flush()

    async def _flush(self) -> None:
        if self._lines:
            lines = bytes(self._lines)
            self._lines.clear()
            await self._in_thread(self._segments.write, lines)

    async def _in_thread(self, function: Callable[..., None], *args: Any) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, function, *args)

    def _count(self, recording: Recording) -> None:
        lost = recording.dropped - self._counted_drops
        if lost:
            log.warning("journal lost records", extra={"records": lost})
            self._metrics.journal_dropped_records.increment(by=lost)
        self._counted_drops = recording.dropped
        written = self._segments.written_bytes
        self._metrics.journal_written_bytes.increment(by=written - self._counted_bytes)
        self._counted_bytes = written


def _taken(waiting: deque[Item | NewFile]) -> Iterator[Item]:
    """Take the records up to the next file."""
    while waiting:
        item = waiting[0]
        if isinstance(item, NewFile):
            return
        del waiting[0]
        yield item


def _said(problem: Exception) -> dict[str, str]:
    return {"err": str(problem)}
