"""A journal beside the scheduler of a test's cluster, and its decisions made again."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from ksched.journal.reading import JournalFile, journal_paths
from ksched.journal.replaying import Replayer
from ksched.journal.writing import FLUSH_SECONDS, Journal
from ksched.metrics import Metrics
from ksched.testing.harness import beside

LARGE = 64 << 20


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "journal"


@asynccontextmanager
async def journaling(c, folder, limit_bytes=LARGE, metrics=None):
    """A journal that has begun; in the end everything is written."""
    journal = Journal(folder, limit_bytes, c.clock, metrics or Metrics(), "test")
    journal.attach(c.scheduler)
    async with beside(journal.run):
        await c.advance(2 * FLUSH_SECONDS)
        yield journal
        await c.advance(2 * FLUSH_SECONDS)


async def replayed(*paths, configuration=None, **options):
    replayer = Replayer(configuration, **options)
    for path in journal_paths([str(path) for path in paths]):
        await replayer.run(JournalFile(path))
    return replayer.report.summary()
