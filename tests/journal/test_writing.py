"""The files of a journal: bounded, rotated, readable after a kill, and no matter for the scheduler.

Covers ``ksched.journal.reading`` and ``ksched.journal.segments`` too.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ksched.journal import writing
from ksched.journal.reading import JournalFile, JournalUnreadable, journal_paths
from ksched.journal.records import FORMAT, Decided
from ksched.journal.segments import JournalTooSmall, Segments, journal_files
from ksched.journal.writing import RETRY_SECONDS, Journal
from ksched.metrics import Metrics
from ksched.testing import cluster, make_pod
from tests.journal.conftest import journaling, replayed


async def fill(c, count, first=0):
    for number in range(first, first + count):
        await c.create(make_pod(f"p{number}").req(cpu="1m").label({"app": f"a{number // 20}"}))
        if number % 20 == 19:
            await c.advance(1)
    await c.advance(1)


async def test_files_are_rotated_and_the_oldest_deleted(folder):
    limit, sizes = 48 << 10, []
    async with cluster(5, check_declarations=False) as c, journaling(c, folder, limit):
        first = journal_files(folder)[0]
        for turn in range(12):
            await fill(c, 40, first=100 * turn)
            for number in range(100 * turn, 100 * turn + 40):
                await c.delete(f"p{number}", grace_seconds=0)
            sizes.append(sum(path.stat().st_size for path in journal_files(folder)))
    assert limit // 2 < max(sizes) <= limit
    assert len(journal_files(folder)) > 1
    assert first not in journal_files(folder)
    assert {path.stat().st_mode & 0o777 for path in journal_files(folder)} == {0o600}
    summary = await replayed(folder)
    assert summary.decisions > 100
    assert (summary.different, summary.notes) == (0, [])


async def test_a_file_that_was_cut_is_readable_up_to_there(folder, tmp_path):
    async with cluster(2) as c, journaling(c, folder):
        await fill(c, 60)
    (path,) = journal_paths([str(folder)])
    data, seen = path.read_bytes(), set()
    for size in range(len(data) // 2, len(data), 7):
        cut = tmp_path / "cut.jsonl.gz"
        cut.write_bytes(data[:size])
        file = JournalFile(cut)
        found = [one for one in file if isinstance(one, Decided)]
        assert file.note
        seen.add(len(found))
    assert max(seen) == 60
    assert len(seen) > 2
    summary = await replayed(cut)
    assert (summary.decisions, summary.same) == (60, 60)
    assert len(summary.notes) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no header"),
        (b"plain text", "not compressed"),
        (None, f"format {FORMAT + 1}, this version of ksched reads up to {FORMAT}"),
    ],
)
def test_other_files_are_refused(tmp_path, content, problem):
    path = tmp_path / "journal-x.jsonl.gz"
    if content is None:
        import gzip

        line = b'{"record":"header","format":2,"ksched":"9","at":1,"configuration":{}}\n'
        content = gzip.compress(line)
    path.write_bytes(content)
    with pytest.raises(JournalUnreadable, match=problem):
        JournalFile(path)


def test_there_is_nothing_to_read(tmp_path):
    with pytest.raises(JournalUnreadable, match="there is no journal"):
        journal_paths([str(tmp_path)])
    with pytest.raises(JournalUnreadable, match="No such file"):
        JournalFile(tmp_path / "missing")


async def test_records_that_find_no_room_are_counted_and_a_new_file_begins(folder, monkeypatch):
    monkeypatch.setattr(writing, "MAX_WAITING", 50)
    metrics = Metrics()
    async with cluster(2) as c, journaling(c, folder, metrics=metrics):
        await c.create(*(make_pod(f"p{number}").req(cpu="1m") for number in range(100)))
        await c.advance(2)
        await fill(c, 10, first=500)
    assert metrics.journal_dropped_records.value() > 0
    assert len(journal_files(folder)) == 2
    summary = await replayed(folder)
    assert (summary.different, summary.not_judged, summary.notes) == (0, {}, [])
    assert 10 < summary.decisions < 110


async def test_a_disk_that_fails_costs_records_and_no_pod(folder, caplog):
    metrics = Metrics()
    folder.write_text("no folder")
    async with cluster(2) as c, journaling(c, folder, metrics=metrics):
        await fill(c, 5)
        assert c.bound("p4")
        assert "journal cannot be written" in caplog.text
        folder.unlink()
        await c.advance(RETRY_SECONDS)
        await fill(c, 5, first=10)
    summary = await replayed(folder)
    assert (summary.decisions, summary.same) == (5, 5)


async def test_a_state_that_is_too_large_ends_the_journal_and_says_so(folder, caplog):
    async with cluster(4, check_declarations=False) as c:
        await fill(c, 200)
        async with journaling(c, folder, 32 << 10):
            await fill(c, 5, first=500)
            assert c.bound("p504")
    said = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert [one.message for one in said] == ["journal stopped, its size is too small"]
    assert sum(path.stat().st_size for path in journal_files(folder)) <= 32 << 10


def test_a_file_has_a_quarter_of_the_limit_at_most(tmp_path):
    segments = Segments(tmp_path, 80)
    segments.begin("now")
    with pytest.raises(JournalTooSmall, match="20 bytes, a quarter of its limit"):
        segments.write(bytes(range(256)))
    segments.close()


async def test_a_follower_writes_nothing(folder):
    async with cluster(1) as c:
        Journal(folder, 1 << 20, c.clock, Metrics(), "test").attach(c.scheduler)
        await fill(c, 3)
        assert c.bound("p2")
        recording: Any = c.scheduler.cycle.observer
        assert not recording.waiting
    assert not folder.exists()


async def test_another_configuration_begins_another_file(folder):
    async with cluster(3, check_declarations=False) as c, journaling(c, folder):
        for turn, weight in enumerate((1, 2, 50)):
            await fill(c, 40, first=100 * turn)
            args = {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": weight}}
            score = {
                "disabled": [{"name": ["ImageLocality", "NodeAffinity", "TaintToleration"][turn]}]
            }
            profile = {"schedulerName": "default-scheduler", "pluginConfig": [args]}
            await c.create(*(make_pod(f"before-{turn}-{n}").req(cpu="1m") for n in range(5)))
            await c.reload({"profiles": [{**profile, "plugins": {"score": score}}]})
            await c.create(*(make_pod(f"after-{turn}-{n}").req(cpu="1m") for n in range(5)))
        await c.advance(2)
    files = journal_files(folder)
    assert len(files) == 4
    configurations = [JournalFile(path).header.configuration for path in files]
    assert len({str(one) for one in configurations}) == 4
    summary = await replayed(folder)
    assert (summary.decisions, summary.different) == (150, 0)
    assert summary.notes == []
