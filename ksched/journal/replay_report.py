"""What a replay found: how many decisions are the same, and what differs, by cause."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Final

from msgspec import Struct

from ksched.clock import rfc3339_micro
from ksched.journal.records import Decided
from ksched.shadow.judging import Judgement

MAX_KEPT: Final = 10_000
"""Differences that are listed; more are only counted."""
MAX_NOTES: Final = 50
EXTENDERS: Final = "extenders took part or would, and are not called"
GROUPS: Final = "pods of groups are decided together"
NO_PROFILE: Final = "the configuration has no profile {}"
UNKNOWN_POD: Final = "the pod is not in the journal"


class Cause(Enum):
    """How a decision differs."""

    PREFERS = "prefers another node"
    REJECTS = "rejects the recorded node"
    FITS_NOW = "rejected it, and does not now"
    REASONS = "other reasons against all nodes"
    NOMINATION = "other choice of preemption"


class ReplayDifference(Struct, frozen=True, rename="camel"):
    """A decision that is not made alike."""

    at: str
    pod: str
    profile: str
    recorded: str
    replayed: str
    cause: Cause
    plugin: str
    detail: str


class CauseCount(Struct, frozen=True, rename="camel"):
    """How many decisions differ in the same way."""

    decisions: int
    plugin: str
    cause: Cause


class ReplaySummary(Struct, frozen=True, rename="camel"):
    """The report for programs."""

    decisions: int
    same: int
    other_feasible: int
    """Of the same ones, those for which another number of nodes fits."""
    causes: list[CauseCount]
    differences: list[ReplayDifference]
    not_judged: dict[str, int]
    notes: list[str]

    @property
    def different(self) -> int:
        return self.decisions - self.same


class ReplayReport:
    """Counts decisions; keeps those that differ."""

    def __init__(self) -> None:
        self._same = self._other_feasible = 0
        self._causes: Counter[tuple[str, Cause]] = Counter()
        self._differences: list[ReplayDifference] = []
        self._not_judged: Counter[str] = Counter()
        self._notes: list[str] = []

    def same(self, decided: Decided, ours: Judgement) -> None:
        self._same += 1
        if decided.feasible and decided.feasible != ours.feasible:
            self._other_feasible += 1

    def differ(
        self, decided: Decided, ours: Judgement, cause: Cause, plugin: str, detail: str
    ) -> None:
        self._causes[plugin, cause] += 1
        if len(self._differences) >= MAX_KEPT:
            return
        recorded = decided.node or Judgement(nominated=decided.nominated)
        self._differences.append(
            ReplayDifference(
                at=rfc3339_micro(decided.at),
                pod=decided.pod,
                profile=decided.profile,
                recorded=str(recorded),
                replayed=str(ours),
                cause=cause,
                plugin=plugin,
                detail=detail,
            )
        )

    def skip(self, reason: str) -> None:
        self._not_judged[reason] += 1

    def note(self, text: str) -> None:
        if text and len(self._notes) < MAX_NOTES:
            self._notes.append(text)

    def summary(self) -> ReplaySummary:
        return ReplaySummary(
            decisions=self._same + self._causes.total(),
            same=self._same,
            other_feasible=self._other_feasible,
            causes=[
                CauseCount(count, plugin, cause)
                for (plugin, cause), count in self._causes.most_common()
            ],
            differences=self._differences,
            not_judged=dict(self._not_judged),
            notes=list(self._notes),
        )
