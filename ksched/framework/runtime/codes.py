"""Verdicts of many plugins as one number per node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.framework.status import Code, Status
from ksched.framework.verdicts import CodesOfNodes, Verdicts
from ksched.tuning import FEW_ROWS

Codes = NDArray[np.int32]
"""Numbers of a ``CodeBook``, one per node."""

AFTER_ALL = 1 << 14
"""Position of number 0: after every plugin."""


class _Translation(NamedTuple):
    """A plugin's codes translated to the numbers of a book."""

    statuses: Sequence[Status]
    numbers: Codes
    wrong: frozenset[int]
    """Codes of statuses that a filter may not return."""


class CodeBook:
    """Numbers for (plugin position, status) pairs; 0 stands for feasible.

    A plugin's own codes (``Verdicts.codes``) are translated to these numbers. The position of a
    number is its plugin's in the calling order. Of two rejections the one at the lower position
    determines the node's status, because kube-scheduler stops at the first plugin that rejects.
    """

    __slots__ = ("_numbers", "_position_list", "_positions", "_translations", "statuses")

    def __init__(self) -> None:
        self.statuses: list[Status] = []
        self._position_list = [AFTER_ALL]
        self._positions = np.array(self._position_list, np.int16)
        self._numbers: dict[tuple[int, Status], int] = {}
        self._translations: dict[int, _Translation] = {}
        """The last one by position: a plugin's statuses are usually the same constant tuple."""

    def fork(self) -> CodeBook:
        """Return a copy to which one attempt may add numbers that are not worth caching."""
        copy = CodeBook()
        copy.statuses = list(self.statuses)
        copy._position_list = list(self._position_list)
        copy._positions = self._positions
        copy._numbers = dict(self._numbers)
        return copy

    def number(self, position: int, status: Status) -> int:
        key = (position, status)
        number = self._numbers.get(key)
        if number is None:
            self.statuses.append(status)
            number = self._numbers[key] = len(self.statuses)
            self._position_list.append(position)
            self._positions = np.array(self._position_list, np.int16)
        return number

    def position(self, number: int) -> int:
        return self._position_list[number]

    def positions(self, numbers: Codes) -> NDArray[np.int16]:
        return self._positions[numbers]

    def status(self, number: int) -> Status:
        return self.statuses[number - 1]

    def translate(self, hook: Hook, position: int, verdicts: object, count: int) -> Codes | None:
        """Translate a plugin's verdicts to numbers; ``None`` if it rejects nothing."""
        if not isinstance(verdicts, Verdicts) or not _are_codes(verdicts.codes, count):
            raise hook.contract_violation(verdicts, f"Verdicts for {count} nodes")
        codes, statuses = verdicts.codes, verdicts.statuses
        lowest, highest = _range(codes)
        if lowest == highest == 0:
            return None
        known = self._translations.get(position)
        if known is None or known.statuses is not statuses:
            known = self._translation(hook, position, statuses)
            if isinstance(statuses, tuple):
                self._translations[position] = known
        if lowest < 0 or highest >= len(known.numbers):
            raise hook.contract_violation(codes, f"codes of {len(known.numbers) - 1} statuses")
        if known.wrong:
            for code in known.wrong.intersection(codes.tolist()):
                raise PluginFailure(_as_error(hook, hook.status(statuses[code - 1])))
        return known.numbers.take(codes)

    def number_of(self, hook: Hook, position: int, status: object) -> int:
        """Return the number of one status of a plugin: 0 for a success."""
        signed = hook.status(status)
        if signed.is_success:
            return 0
        if not signed.is_rejected:
            raise PluginFailure(_as_error(hook, signed))
        return self.number(position, signed)

    def _translation(self, hook: Hook, position: int, statuses: Sequence[Status]) -> _Translation:
        if not isinstance(statuses, list | tuple):
            raise hook.contract_violation(statuses, "a tuple of statuses")
        numbers, wrong = [0], set()
        for code, status in enumerate(hook.statuses(statuses), 1):
            if status.is_rejected:
                numbers.append(self.number(position, status))
            else:
                numbers.append(0)
                wrong.add(code)
        return _Translation(statuses, np.array(numbers, np.int32), frozenset(wrong))

    def first(self, one: Codes, other: Codes) -> Codes:
        """Return, per node, the number at the lower position."""
        return np.where(self._positions[one] <= self._positions[other], one, other)


def _are_codes(codes: object, count: int) -> bool:
    # Not ``isinstance``: the codes of a masked array may be anything.
    return type(codes) is np.ndarray and codes.shape == (count,) and codes.dtype.kind in "iu"


def _range(codes: CodesOfNodes) -> tuple[int, int]:
    if len(codes) > FEW_ROWS:
        return int(codes.min()), int(codes.max())
    few = codes.tolist()
    return (min(few), max(few)) if few else (0, 0)


def _as_error(hook: Hook, status: Status) -> Status:
    """A filter may only accept or reject; any other status fails the attempt."""
    return Status(Code.ERROR, (f"{hook.activity}: {status.message}",), hook.plugin)
