"""A reader misses nothing, reads nothing twice, and is told when it is too late."""

from __future__ import annotations

from ksched.cache.change_log import ChangeLog, RowLog


def test_a_new_reader_looks_at_everything() -> None:
    log: ChangeLog[str] = ChangeLog()
    cursor = log.cursor()
    assert cursor.changes() is None
    cursor.advance()
    assert cursor.is_current


def test_a_reader_gets_what_changed_since_it_read() -> None:
    log: ChangeLog[str] = ChangeLog()
    cursor = log.cursor()
    cursor.go_to_end()
    log.append("b")
    log.append("a")
    assert cursor.changes() == ["b", "a"]
    cursor.advance()
    assert cursor.is_current
    assert cursor.changes() == []


def test_a_reader_that_gave_up_finds_the_same_changes_again() -> None:
    log: ChangeLog[str] = ChangeLog()
    cursor = log.cursor()
    cursor.go_to_end()
    log.append("a")
    assert cursor.changes() == ["a"]
    log.append("b")
    assert cursor.changes() == ["a", "b"]


def test_what_is_logged_while_a_reader_is_at_work_is_left_for_its_next_time() -> None:
    log: ChangeLog[str] = ChangeLog()
    cursor = log.cursor()
    cursor.changes()
    log.append("a")
    cursor.advance()
    assert not cursor.is_current
    assert cursor.changes() == ["a"]


def test_a_reader_that_fell_behind_looks_at_everything() -> None:
    log: ChangeLog[int] = ChangeLog(limit=10)
    cursor, late = log.cursor(), log.cursor()
    late.go_to_end()
    for number in range(21):
        log.append(number)
        if number == 10:
            cursor.go_to_end()
    assert late.changes() is None
    assert cursor.changes() == list(range(11, 21))


def test_all_readers_look_at_everything_when_a_log_forgets() -> None:
    log: ChangeLog[int] = ChangeLog()
    cursor = log.cursor()
    cursor.go_to_end()
    log.forget()
    assert not cursor.is_current
    assert cursor.changes() is None


def test_a_reader_can_start_over_or_go_where_another_is() -> None:
    log: ChangeLog[int] = ChangeLog()
    one, other = log.cursor(), log.cursor()
    one.go_to_end()
    log.append(1)
    other.go_to(one)
    assert other.changes() == [1]
    one.start_over()
    assert one.changes() is None
    one.start_over()
    one.advance()
    assert one.is_current


def test_rows_are_read_once_each_in_ascending_order() -> None:
    log = RowLog()
    cursor = log.cursor()
    cursor.go_to_end()
    for row in (3, 1, 3):
        log.append(row)
    assert cursor.changes() == [1, 3]
