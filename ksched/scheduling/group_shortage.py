"""Why a group does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ksched.groups.slots import Slots
from ksched.scheduling.group_trial import Need
from ksched.scheduling.scheduling_cycle import Rejected


class Shortage(NamedTuple):
    """Why a group does not fit."""

    text: str
    rejectors: frozenset[str]
    places: int
    """How many members have no place."""
    slots: Slots | None = None
    """Those that prove it, if all members are alike."""


def shortage_of(misfits: Sequence[Rejected], fitting: int, need: Need) -> Shortage:
    """The reason of the first member that did not fit, and what all of them wait for."""
    rejectors = frozenset[str]()
    for one in misfits:
        if one.diagnosis is not None:
            rejectors |= one.diagnosis.unschedulable_plugins
    text = f"{fitting} of {need.total} fit"
    if misfits:
        text += f"; {misfits[0].queued.key}: {misfits[0].message}"
    return Shortage(text, rejectors, max(need.total - fitting, 0))
