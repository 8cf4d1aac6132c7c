"""Compiled device selectors, shared by all claims and classes that have the same expression."""

from __future__ import annotations

from collections.abc import Hashable

from ksched.cache.recently_used import RecentlyUsed
from ksched.cel import CompileError, EvaluationError
from ksched.devices.device_selectors import (
    DeviceSelector,
    compile_device_selector,
    is_expensive_to_compile,
)
from ksched.devices.effort import STEPS_PER_LOOK, Effort
from ksched.devices.slices import DeviceShape

SELECTORS_CACHED = 1024
ANSWERS_CACHED = 16384
"""Of each selector that takes long."""


class SelectorError(Exception):
    """A selector cannot be compiled, or not be evaluated for a device."""


class CompiledSelector:
    """A selector, compiled on first use, or why it cannot be.

    Long evaluations run in a thread and their results are cached: ``matches`` may be called again
    on the event loop.
    """

    __slots__ = ("_answers", "_expression", "_problem", "_selector")

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._selector: DeviceSelector | None = None
        self._problem = ""
        self._answers: dict[Hashable, bool | SelectorError] = {}
        """Of a selector that takes long, by what it reads."""

    def matches(self, shape: DeviceShape, effort: Effort) -> bool:
        """Whether devices of a shape are selected; raises ``SelectorError``.

        Raises what ``effort`` raises when there is no time for it.
        """
        selector = self._selector or self._compiled(effort)
        if not selector.is_expensive:
            effort.spend(STEPS_PER_LOOK)
            return _evaluate(selector, shape)
        key = selector.what_it_reads(shape.selectable) or shape.number
        answer = self._answers.get(key)
        if answer is None:
            effort.need_thread()
            try:
                answer = _evaluate(selector, shape)
            except SelectorError as problem:
                answer = problem.with_traceback(None)
            if len(self._answers) >= ANSWERS_CACHED:
                self._answers.clear()
            self._answers[key] = answer
        if isinstance(answer, SelectorError):
            raise SelectorError(*answer.args)
        return answer

    def _compiled(self, effort: Effort) -> DeviceSelector:
        if not self._problem:
            if is_expensive_to_compile(self._expression):
                effort.need_thread()
            effort.spend(STEPS_PER_LOOK)
            try:
                self._selector = compile_device_selector(self._expression)
            except CompileError as problem:
                self._problem = f"CEL compile error: {problem}"
            else:
                return self._selector
        raise SelectorError(self._problem)


def _evaluate(selector: DeviceSelector, shape: DeviceShape) -> bool:
    try:
        return selector.matches(shape.selectable)
    except EvaluationError as problem:
        raise SelectorError(f"CEL runtime error: {problem}") from None


class SelectorCache:
    """By expression."""

    def __init__(self) -> None:
        self._selectors: RecentlyUsed[str, CompiledSelector] = RecentlyUsed()

    def compiled(self, expression: str) -> CompiledSelector:
        known = self._selectors.get(expression)
        if known is None:
            known = CompiledSelector(expression)
            self._selectors.put(expression, known, SELECTORS_CACHED)
        return known

    def sweep(self) -> None:
        self._selectors.sweep()
