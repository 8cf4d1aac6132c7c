"""Makes the decisions of a journal again, each on the state that was recorded.

A decision is the same if the recorded node is one of those that score best now, or the pod is
rejected with the same message. Which of several best nodes is taken is chance, in both. After each
decision the recorded outcome holds, whatever it is now: the next one is made on what was.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from ksched.api.objects import Pod
from ksched.client.rest import ApiClient
from ksched.configuration.loading import load_config
from ksched.configuration.model import SchedulerConfiguration
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.read_only import NoServer
from ksched.framework.runtime.registry import Registry
from ksched.journal.reading import JournalFile
from ksched.journal.recorded_state import RecordedState
from ksched.journal.records import AnyRecord, Began, Decided, Header, Together
from ksched.journal.replay_report import (
    EXTENDERS,
    GROUPS,
    NO_PROFILE,
    UNKNOWN_POD,
    Cause,
    ReplayReport,
)
from ksched.scheduling.sweeping import Sweeper
from ksched.shadow.judging import Judge, Judgement

T = TypeVar("T")

OFFSETS: Final = 16
"""Preemption looks at a part of the nodes, from a random one on: so many are tried."""
SWEEP_EVERY: Final = 20_000
"""Decisions after which caches drop what is not used any more."""


class RecordedClock:
    """The time at which the decision was made."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        """No time passes between two records."""


class Leaning(random.Random):
    """Chance that prefers what was recorded, where preemption chooses among equals."""

    def __init__(self) -> None:
        super().__init__(0)
        self.node = ""
        self.offset = 0
        self.range = 0

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        if not self.node or stop is not None:
            return super().randrange(start, stop, step)
        self.range = start
        return self.offset * start // OFFSETS % start

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]
        for one in seq:
            if self.node and getattr(one, "node_name", "") == self.node:
                return one
        return super().choice(seq)


class Replayer:
    """Replays the files of a journal, one after another, into one report.

    Without ``configuration`` each file is decided with its own. ``pod`` and ``at`` limit what is
    judged; the state is the whole one always.
    """

    def __init__(
        self,
        configuration: SchedulerConfiguration | None = None,
        *,
        pod: str = "",
        at: float | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.report = ReplayReport()
        self._configuration, self._registry = configuration, registry
        self._pod, self._at = pod, at

    async def run(self, file: JournalFile) -> None:
        """Replay one file; raises ``ConfigError`` and ``JournalUnreadable``."""
        configuration = self._configuration or recorded_configuration(file.header)
        recorded = file.header.configuration.get("extenders")
        replay = _Replay(
            configuration,
            self._registry,
            self.report,
            has_extenders=bool(configuration.extenders or recorded),
        )
        if file.header.left_out:
            kinds = ", ".join(file.header.left_out)
            self.report.note(f"{file.path}: not recorded, since they may be secret: {kinds}")
        await replay.run(file, self.is_wanted)
        for note in (file.note, *replay.notes):
            self.report.note(note)

    def is_wanted(self, decided: Decided | Together) -> bool:
        """Whether a decision is judged."""
        if self._pod and decided.pod != self._pod:
            return False
        return self._at is None or int(decided.at) == int(self._at)


def recorded_configuration(header: Header) -> SchedulerConfiguration:
    """The configuration with which the decisions were made."""
    content = {key: value for key, value in header.configuration.items() if key != "extenders"}
    return load_config(msgspec.json.encode(content).decode(), lambda warning: None)


class _Replay:
    """One file in one copy of the cluster."""

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        registry: Registry | None,
        report: ReplayReport,
        *,
        has_extenders: bool,
    ) -> None:
        self._clock, self._chance, self._report = RecordedClock(), Leaning(), report
        self._copy = ClusterCopy(
            ApiClient(NoServer(), self._clock),
            configuration,
            self._clock,
            registry=registry,
            rng=self._chance,
            sees_all_nodes=False,
        )
        self._state = RecordedState(self._copy)
        self._judges = {
            name: Judge(self._copy, profile) for name, profile in self._copy.profiles.items()
        }
        self._has_extenders, self._decisions = has_extenders, 0
        self._sweeper = Sweeper(
            cache=self._copy.cache,
            cycle=self._copy.cycle,
            profiles=self._copy.profiles.values(),
            clock=self._clock,
        )

    @property
    def notes(self) -> Iterable[str]:
        return (*self._state.notes, *self._copy.invalid)

    async def run(
        self, records: Iterable[AnyRecord], is_wanted: Callable[[Decided | Together], bool]
    ) -> None:
        late: list[AnyRecord] = []
        """What changed while a decision was made, which was not part of its state."""
        is_deciding = False
        for record in records:
            if isinstance(record, Together):
                if is_wanted(record):
                    self._report.skip(GROUPS)
                continue
            if is_deciding and not isinstance(record, Began | Decided):
                late.append(record)
                continue
            if isinstance(record, Decided) and is_wanted(record):
                await self._decide(record)
            for one in late:
                self._state.apply(one)
            late.clear()
            is_deciding = isinstance(record, Began)
            self._state.apply(record)
            if isinstance(record, Decided) and record.node and not record.message:
                self._state.assume(record.uid, record.node)

    async def _decide(self, decided: Decided) -> None:
        self._clock.at = decided.at
        self._decisions += 1
        if self._decisions % SWEEP_EVERY == 0:
            self._sweeper.sweep()
        judge, pod = self._judges.get(decided.profile), self._state.pending(decided.uid)
        if self._has_extenders:
            self._report.skip(EXTENDERS)
        elif judge is None:
            self._report.skip(NO_PROFILE.format(decided.profile))
        elif pod is None:
            self._report.skip(UNKNOWN_POD)
        else:
            ours = await self._judged(judge, decided, pod.pod)
            if _is_same(decided, ours):
                self._report.same(decided, ours)
            else:
                await self._differ(judge, decided, ours, pod.pod)

    async def _judged(self, judge: Judge, decided: Decided, pod: Pod) -> Judgement:
        """Decide; if preemption depends on chance, look for the recorded choice."""
        profile = self._copy.profiles[decided.profile]
        self._chance.node, self._chance.offset = decided.nominated, 0
        try:
            while True:
                profile.next_start_node_index = decided.start
                ours = await judge.decide(pod)
                is_other = bool(decided.nominated) and ours.nominated != decided.nominated
                self._chance.offset += 1
                if not is_other or not ours.nominated or self._chance.offset >= OFFSETS:
                    return ours
        finally:
            self._chance.node = ""

    async def _differ(self, judge: Judge, decided: Decided, ours: Judgement, pod: Pod) -> None:
        rejected_by = ", ".join(decided.plugins)
        if decided.node:
            found = await judge.compare(pod, decided.node)
            cause = Cause.PREFERS if ours.best else Cause.REJECTS
            if ours.best and found.detail.startswith("rejects "):
                cause = Cause.REJECTS
            self._report.differ(decided, ours, cause, found.plugin, found.detail)
        elif ours.best:
            detail = f"recorded: {decided.message}"
            self._report.differ(decided, ours, Cause.FITS_NOW, rejected_by, detail)
        elif decided.message != ours.message:
            self._report.differ(decided, ours, Cause.REASONS, "", f"now: {ours.message}")
        else:
            self._report.differ(decided, ours, Cause.NOMINATION, "DefaultPreemption", "")


def _is_same(decided: Decided, ours: Judgement) -> bool:
    if decided.node:
        return decided.node in ours.best
    is_rejected = not ours.best and decided.message == ours.message
    return is_rejected and decided.nominated == ours.nominated
