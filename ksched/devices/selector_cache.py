"""Compiled device selectors, shared by all claims and classes that have the same expression."""

from __future__ import annotations

from ksched.cache.recently_used import RecentlyUsed
from ksched.cel import CompileError, EvaluationError
from ksched.devices.device_selectors import DeviceSelector, compile_device_selector
from ksched.devices.slices import DeviceShape

SELECTORS_CACHED = 1024


class SelectorError(Exception):
    """A selector cannot be compiled, or cannot tell about a device."""


class CompiledSelector:
    """A selector, or why there is none."""

    __slots__ = ("_problem", "_selector")

    def __init__(self, expression: str) -> None:
        self._selector: DeviceSelector | None = None
        self._problem = ""
        try:
            self._selector = compile_device_selector(expression)
        except CompileError as problem:
            self._problem = f"CEL compile error: {problem}"

    def matches(self, shape: DeviceShape) -> bool:
        """Whether devices of a shape are selected; raises ``SelectorError``."""
        if self._selector is None:
            raise SelectorError(self._problem)
        try:
            return self._selector.matches(shape.selectable)
        except EvaluationError as problem:
            raise SelectorError(f"CEL runtime error: {problem}") from problem


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
