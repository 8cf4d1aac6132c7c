from __future__ import annotations

from ksched.cache.change_log import RowLog


def test_a_reader_gets_each_changed_row_once() -> None:
    log = RowLog()
    position = log.position
    for row in (3, 1, 3):
        log.append(row)
    assert log.since(position) == [1, 3]


def test_a_reader_that_is_up_to_date_gets_nothing() -> None:
    log = RowLog()
    log.append(1)
    assert log.since(log.position) == []


def test_a_reader_that_fell_behind_is_told_to_look_at_everything() -> None:
    log = RowLog(limit=10)
    position = log.position
    for row in range(21):
        log.append(row)
    assert log.since(position) is None
    assert log.since(log.position - 10) == list(range(11, 21))


def test_a_reader_that_never_read_looks_at_everything() -> None:
    assert RowLog().since(-1) is None
