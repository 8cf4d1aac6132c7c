"""What a comparison has found so far; the content of ``ksched shadow -o json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ksched.shadow.suspicion import Suspicion

MAX_KEPT: Final = 10_000
"""Differences that are kept one by one; all are counted."""


class Outcome(Enum):
    """How two decisions about one pod compare; the values are those of the metric's label."""

    SAME_NODE = "same_node"
    EQUAL_SCORE = "equal_score"
    REJECTED_ALIKE = "rejected_alike"
    NOMINATION = "nomination"
    SAMPLING = "sampling"
    STATE_LAG = "state_lag"
    CONFIGURATION = "configuration"
    DIFFERENT = "different"

    @property
    def is_agreement(self) -> bool:
        return self in (Outcome.SAME_NODE, Outcome.EQUAL_SCORE, Outcome.REJECTED_ALIKE)


class Difference(Struct, frozen=True, rename="camel"):
    """A decision that was not made alike on the state just before it, and why.

    ``plugin`` and ``detail`` say what is in favour of our choice; ``lag`` is the neighbouring state
    that yields the live one. ``variants`` are the other configurations, by number, that do.
    """

    pod: str
    profile: str
    live: str
    shadow: str
    outcome: Outcome
    plugin: str = ""
    detail: str = ""
    lag: str = ""
    variants: frozenset[int] = frozenset()

    @property
    def blamed(self) -> str:
        """The plugin, if the difference is one of what the schedulers would do."""
        return "" if self.outcome is Outcome.STATE_LAG else self.plugin

    @property
    def why(self) -> str:
        return self.lag if self.outcome is Outcome.STATE_LAG else self.detail


class Finding(Struct, frozen=True, rename="camel"):
    """A configuration that explains differences of a profile, noticed after so many decisions."""

    profile: str
    configurations: list[str]
    explains: int
    noticed_after: int


class Summary(Struct, frozen=True, rename="camel"):
    """The report for programs."""

    decisions: int
    """Judged ones; ``notJudged`` are not among them."""
    agreeing: int
    outcomes: dict[str, int]
    not_judged: dict[str, int]
    """Why, and how often."""
    findings: list[Finding]
    differences: list[Difference]
    notes: list[str]

    @property
    def is_different(self) -> bool:
        """Whether the schedulers differ in what they would do, not only in what they had seen."""
        names = (Outcome.CONFIGURATION.value, Outcome.DIFFERENT.value)
        return any(self.outcomes.get(name) for name in names)


class Report:
    """Counts outcomes; a difference may be understood later, when there are more like it."""

    def __init__(self) -> None:
        self._agreements: Counter[tuple[str, Outcome]] = Counter()
        self._not_judged: Counter[str] = Counter()
        self._differences: list[Difference] = []
        self._dropped: Counter[tuple[str, Outcome, str]] = Counter()
        self._suspicions: dict[str, Suspicion] = {}
        self._noticed: dict[str, int] = {}
        self.notes: list[str] = []
        self.observer: Callable[[Difference], None] | None = None
        """Called with every difference, as it is understood when it is found."""

    def watch(self, profile: str, suspicion: Suspicion) -> None:
        """Explain differences of a profile by what it is suspected of, now and later."""
        self._suspicions[profile] = suspicion

    def agree(self, profile: str, outcome: Outcome) -> None:
        self._agreements[profile, outcome] += 1

    def differ(self, difference: Difference) -> None:
        if len(self._differences) < MAX_KEPT:
            self._differences.append(difference)
        else:
            seen = self._understood(difference)
            self._dropped[seen.profile, seen.outcome, seen.blamed] += 1
        suspicion = self._suspicions[difference.profile]
        if suspicion.named:
            self._noticed.setdefault(difference.profile, self.decisions)
        if self.observer is not None:
            self.observer(self._understood(difference))

    def skip(self, reason: str) -> None:
        self._not_judged[reason] += 1

    @property
    def decisions(self) -> int:
        return self._agreements.total() + len(self._differences) + self._dropped.total()

    def counts(self) -> Counter[tuple[str, Outcome, str]]:
        """Decisions by profile, outcome and, of those that differ, plugin."""
        counts = Counter(self._dropped)
        for (profile, outcome), count in self._agreements.items():
            counts[profile, outcome, ""] += count
        for one in self.differences():
            counts[one.profile, one.outcome, one.blamed] += 1
        return counts

    def differences(self) -> Iterator[Difference]:
        return map(self._understood, self._differences)

    def summary(self) -> Summary:
        outcomes: Counter[str] = Counter()
        for (_, outcome, _), count in self.counts().items():
            outcomes[outcome.value] += count
        agreeing = sum(outcomes[one.value] for one in Outcome if one.is_agreement)
        return Summary(
            decisions=self.decisions,
            agreeing=agreeing,
            outcomes={one.value: outcomes[one.value] for one in Outcome if outcomes[one.value]},
            not_judged=dict(self._not_judged),
            findings=list(self._findings()),
            differences=list(self.differences()),
            notes=list(self.notes),
        )

    @property
    def not_judged(self) -> int:
        return self._not_judged.total()

    def _understood(self, difference: Difference) -> Difference:
        """The difference, put down to a configuration that is named by now."""
        named = self._suspicions[difference.profile].named
        if not difference.variants & named or difference.outcome is Outcome.NOMINATION:
            return difference
        return replace(difference, outcome=Outcome.CONFIGURATION)

    def _findings(self) -> Iterator[Finding]:
        for profile, suspicion in self._suspicions.items():
            explained = sum(
                one.outcome is Outcome.CONFIGURATION and one.profile == profile
                for one in self.differences()
            )
            if suspicion.named:
                noticed = self._noticed.get(profile, self.decisions)
                yield Finding(profile, suspicion.labels, explained, noticed)
