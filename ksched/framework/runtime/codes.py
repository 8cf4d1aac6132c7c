"""Verdicts of many plugins as one number per node."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.framework.status import Code, Status
from ksched.framework.verdicts import Verdicts

Codes = NDArray[np.int32]

NO_RANK = 1 << 14
"""Rank of code 0: later than every plugin."""


class CodeBook:
    """Numbers for (plugin position, status) pairs; 0 stands for feasible.

    The rank of a code is its plugin's position: of two rejections the one of lower rank owns the
    node, because upstream stops at the first plugin that rejects.
    """

    __slots__ = ("_numbers", "_rank_list", "_ranks", "statuses")

    def __init__(self) -> None:
        self.statuses: list[Status] = []
        self._rank_list = [NO_RANK]
        self._ranks = np.array(self._rank_list, np.int16)
        self._numbers: dict[tuple[int, Status], int] = {}

    def fork(self) -> CodeBook:
        """A copy to which one attempt may add codes that are not worth keeping."""
        copy = CodeBook()
        copy.statuses = list(self.statuses)
        copy._rank_list = list(self._rank_list)
        copy._ranks = self._ranks
        copy._numbers = dict(self._numbers)
        return copy

    def number(self, rank: int, status: Status) -> int:
        key = (rank, status)
        number = self._numbers.get(key)
        if number is None:
            self.statuses.append(status)
            number = self._numbers[key] = len(self.statuses)
            self._rank_list.append(rank)
            self._ranks = np.array(self._rank_list, np.int16)
        return number

    def rank(self, code: int) -> int:
        return self._rank_list[code]

    def ranks(self, codes: Codes) -> NDArray[np.int16]:
        return self._ranks[codes]

    def status(self, code: int) -> Status:
        return self.statuses[code - 1]

    def translate(self, hook: Hook, rank: int, verdicts: object, count: int) -> Codes | None:
        """Turn a plugin's verdicts into codes of this book; ``None`` if it rejects nothing."""
        if not isinstance(verdicts, Verdicts) or not _are_codes(verdicts.codes, count):
            raise hook.nonsense(verdicts, f"Verdicts for {count} nodes")
        codes = verdicts.codes
        if not codes.any():
            return None
        if codes.min() < 0 or codes.max() > len(verdicts.statuses):
            raise hook.nonsense(codes, f"codes of {len(verdicts.statuses)} statuses")
        numbers = [0]
        for code, status in enumerate(map(hook.status, verdicts.statuses), 1):
            if status.is_rejected:
                numbers.append(self.number(rank, status))
            elif (codes == code).any():
                raise PluginFailure(_as_error(hook, status))
            else:
                numbers.append(0)
        return np.array(numbers, np.int32)[codes]

    def first(self, one: Codes, other: Codes) -> Codes:
        """Per node the code of lower rank."""
        return np.where(self._ranks[one] <= self._ranks[other], one, other)


def _are_codes(codes: object, count: int) -> bool:
    return isinstance(codes, np.ndarray) and codes.shape == (count,) and codes.dtype.kind in "iu"


def _as_error(hook: Hook, status: Status) -> Status:
    """A filter may only accept or reject; any other answer ends the attempt."""
    return Status(Code.ERROR, (f"{hook.activity}: {status.message}",), hook.plugin)
