"""The numbers that verdicts of plugins are translated to."""

from __future__ import annotations

import numpy as np
import pytest

from ksched.framework import Status, Verdicts, error, unresolvable, unschedulable
from ksched.framework.runtime.codes import CodeBook
from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.testing import FakePlugin

REASONS = (unschedulable("full"), unresolvable("tainted"))


@pytest.fixture
def hook() -> Hook:
    return Hook(FakePlugin("Picky"), lambda *_: REASONS[0], "Filter")


def translated(book: CodeBook, hook: Hook, *codes: int, of: tuple[Status, ...]) -> list[Status]:
    numbers = book.translate(hook, 3, Verdicts(np.array(codes, np.int16), of), len(codes))
    assert numbers is not None
    return [book.status(number) for number in numbers.tolist() if number]


def test_a_constant_tuple_of_statuses_is_read_once_for_all_attempts(hook: Hook) -> None:
    book = CodeBook()
    first = translated(book.fork(), hook, 0, 1, 2, of=REASONS)
    again = translated(book.fork(), hook, 2, 1, 0, of=REASONS)
    assert [one.plugin for one in first] == ["Picky", "Picky"]
    assert first[0] is again[1]
    assert first[1] is again[0]


def test_other_statuses_are_other_statuses(hook: Hook) -> None:
    book = CodeBook()
    assert translated(book.fork(), hook, 1, of=REASONS)[0].reasons == ("full",)
    assert translated(book.fork(), hook, 1, of=REASONS[::-1])[0].reasons == ("tainted",)
    assert translated(book.fork(), hook, 1, of=REASONS)[0].reasons == ("full",)


def test_a_status_that_a_filter_may_not_return_fails_every_attempt_it_occurs_in(hook: Hook) -> None:
    wrong = (*REASONS, error("no answer"))
    book = CodeBook()
    for _ in range(2):
        assert translated(book.fork(), hook, 1, of=wrong)[0].reasons == ("full",)
        with pytest.raises(PluginFailure, match="no answer"):
            translated(book.fork(), hook, 3, of=wrong)
