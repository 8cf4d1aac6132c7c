"""Decisions of a journal, made again in a test."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ksched.configuration.model import SchedulerConfiguration
from ksched.framework.runtime.registry import Registry
from ksched.journal.reading import JournalFile
from ksched.journal.replay_report import ReplaySummary
from ksched.journal.replaying import Replayer


def replay_journal(
    path: Path,
    configuration: SchedulerConfiguration | None = None,
    *,
    registry: Registry | None = None,
) -> ReplaySummary:
    """Decide again what a file of a journal has, by default with the recorded configuration.

    ``registry`` has plugins that are not installed, as for ``Scheduler``. Call it outside of an
    event loop.
    """
    replayer = Replayer(configuration, registry=registry)
    asyncio.run(replayer.run(JournalFile(path)))
    return replayer.report.summary()
