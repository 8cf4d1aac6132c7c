"""What a process and its descendants have used, out of /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# Positions in /proc/PID/stat counted from the state, the first field after the command's name.
_USER_TICKS, _SYSTEM_TICKS, _RSS_PAGES = 11, 12, 21


class Usage(NamedTuple):
    """CPU time since the start and memory now; zero for a process that is gone."""

    cpu_seconds: float
    rss_bytes: int


def usage(pid: int) -> Usage:
    """Add up a process and all its living descendants."""
    each = [_own_usage(one) for one in _with_descendants(pid)]
    return Usage(sum(one.cpu_seconds for one in each), sum(one.rss_bytes for one in each))


class MachineTime(NamedTuple):
    """Of all cores together, since the start."""

    seconds: float
    idle_seconds: float


def machine_time() -> MachineTime:
    """The time of all cores, and how much of it nothing ran."""
    first_line = Path("/proc/stat").read_text().partition("\n")[0]
    # User, nice, system, idle, waiting for a disk, interrupts of two kinds, stolen; what follows
    # is part of the first two.
    ticks = [int(one) for one in first_line.split()[1:9]]
    return MachineTime(sum(ticks) / _TICKS_PER_SECOND, sum(ticks[3:5]) / _TICKS_PER_SECOND)


def open_descriptors(pid: int) -> int:
    """How many files and sockets a process holds open; 0 for one that is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def main_thread_seconds(pid: int) -> float:
    """CPU time of a process's first thread, to the nanosecond."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def _own_usage(pid: int) -> Usage:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return Usage(0.0, 0)
    # The name is in parentheses and may contain any character, parentheses too.
    fields = stat.rpartition(")")[2].split()
    ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    return Usage(ticks / _TICKS_PER_SECOND, int(fields[_RSS_PAGES]) * _PAGE_BYTES)


def _with_descendants(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = children.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in pids:
            yield from _with_descendants(int(child))
