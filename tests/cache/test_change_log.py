from __future__ import annotations

from ksched.cache.change_log import ChangeLog


def test_a_reader_gets_each_changed_row_once() -> None:
    log = ChangeLog()
    position = log.position
    for row in (3, 1, 3):
        log.append(row)
    changed = log.since(position)
    assert changed is not None
    assert changed.tolist() == [1, 3]


def test_a_reader_that_is_up_to_date_gets_nothing() -> None:
    log = ChangeLog()
    log.append(1)
    changed = log.since(log.position)
    assert changed is not None
    assert not len(changed)


def test_a_reader_that_fell_behind_is_told_to_look_at_everything() -> None:
    log = ChangeLog(limit=10)
    position = log.position
    for row in range(21):
        log.append(row)
    assert log.since(position) is None
    recent = log.since(log.position - 10)
    assert recent is not None
    assert recent.tolist() == list(range(11, 21))


def test_a_reader_that_never_read_looks_at_everything() -> None:
    assert ChangeLog().since(-1) is None
