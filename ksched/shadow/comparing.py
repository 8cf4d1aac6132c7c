"""Compares one live decision with ours, and finds the cause of a difference.

A cause is named only if it was tried: a neighbouring state, another configuration, or a part of the
nodes that yields the live choice. What nothing of that yields is a real difference, and the plugin
that decides it is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from ksched.api.objects import Pod
from ksched.configuration.model import SchedulerConfiguration
from ksched.explain.cluster_copy import ClusterCopy
from ksched.shadow.changes import Change, Replay
from ksched.shadow.judging import Judge, Judgement
from ksched.shadow.live_decisions import LiveDecision
from ksched.shadow.neighbours import LAG_SECONDS, Neighbour, QueueOrder, neighbours
from ksched.shadow.own_writes import own_writes
from ksched.shadow.report import Difference, Outcome, Report
from ksched.shadow.suspicion import Suspicion
from ksched.shadow.variants import Variant


class Moment:
    """The changes around a decision that was seen ``at`` a time: before it, and after it."""

    def __init__(
        self,
        at: float,
        before: Iterable[Change],
        after: Iterable[Change],
        order_of: Callable[[Pod], QueueOrder | None],
    ) -> None:
        self._at, self.before, self._after = at, before, after
        self._order_of = order_of

    def neighbours(self, pod: Pod, own: Sequence[Change]) -> Iterator[Neighbour]:
        def order(change: Change) -> QueueOrder | None:
            return self._order_of(change.old)

        before = [one for one in self.before if self._at - one.at <= LAG_SECONDS]
        after = [one for one in self._after if one.at - self._at <= LAG_SECONDS]
        return neighbours(before, after, order, self._order_of(pod), own)


class Comparer:
    """Judges live decisions of one profile on the copy of the cluster, and reports."""

    def __init__(
        self,
        copy: ClusterCopy,
        replay: Replay,
        report: Report,
        profile: str,
        variants: Sequence[Variant],
        percentage: int,
    ) -> None:
        self._copy, self._replay, self._report, self._profile = copy, replay, report, profile
        self._judge = Judge(copy, copy.profiles[profile])
        self._variants = variants
        self._others = [Judge(copy, copy.profiles[one.profile.scheduler_name]) for one in variants]
        self._percentage = percentage
        self._suspicion = Suspicion([one.label for one in variants])
        report.watch(profile, self._suspicion)

    async def compare(self, live: LiveDecision, moment: Moment) -> None:
        """Judge a decision; the copy is as the cluster was just before it was written."""
        own = own_writes(live.pod, moment.before, self._copy.listers)
        with self._taken_back(reversed(own)), self._without_nomination(live.pod):
            pod = _without_nomination(live.pod)
            ours = await self._judge.decide(pod)
            if await self._agrees(ours, live, pod):
                self._suspicion.agree()
                if self._suspicion.wants_control:
                    own_best = max(len(ours.best), 1)
                    best = await self._best_of_variants(live, pod)
                    self._suspicion.control(best, own_best, self._num_nodes)
                self._report.agree(self._profile, _agreement(ours, live))
                return
            self._report.differ(await self._difference(live, pod, ours, moment, own))

    async def _agrees(self, ours: Judgement, live: LiveDecision, pod: Pod) -> bool:
        if ours.agrees_with(live):
            return True
        if (
            live.nominated
            and ours.nominated
            and replace(ours, nominated="").agrees_with(replace(live, nominated=""))
        ):
            return live.nominated in await self._judge.nominations(pod)
        return False

    async def _difference(
        self,
        live: LiveDecision,
        pod: Pod,
        ours: Judgement,
        moment: Moment,
        own: Sequence[Change],
    ) -> Difference:
        made = Difference(
            pod.metadata.key, self._profile, _described(live), str(ours), Outcome.DIFFERENT
        )
        if live.node and live.node == live.pod.status.nominated_node_name:
            detail = "it was nominated there by preemption, so no other node was tried"
            return replace(made, outcome=Outcome.NOMINATION, detail=detail)
        if live.node and await self._judge.may_be_sampled(pod, live.node, self._percentage):
            detail = f"best of a part of the nodes; of all, {ours} is"
            return replace(made, outcome=Outcome.SAMPLING, detail=detail)
        best: dict[int, int] = {}
        if self._suspicion.wants_more:
            best = await self._best_of_variants(live, pod)
        plugin, detail = await self._why(live, pod, ours)
        lag = None
        if not best.keys() & self._suspicion.named:
            lag = await self._lag(live, pod, moment, own)
        if self._suspicion.wants_more:
            self._suspicion.differ(best, self._num_nodes, is_lag=lag is not None)
        made = replace(made, plugin=plugin, detail=detail, variants=frozenset(best))
        if lag is not None:
            return replace(made, outcome=Outcome.STATE_LAG, lag=str(lag))
        return made

    @property
    def _num_nodes(self) -> int:
        return len(self._copy.cache.snapshot)

    async def _best_of_variants(self, live: LiveDecision, pod: Pod) -> dict[int, int]:
        """The number of best nodes of every variant that may make the live decision."""
        found = {}
        for number, judge in enumerate(self._others):
            judged = await judge.decide(pod)
            if judged.agrees_with(live):
                found[number] = max(len(judged.best), 1)
        return found

    async def _why(self, live: LiveDecision, pod: Pod, ours: Judgement) -> tuple[str, str]:
        if live.node:
            found = await self._judge.compare(pod, live.node)
            return found.plugin, found.detail
        if ours.best:
            return "", f"the live scheduler says: {live.message}"
        if live.nominated and ours.nominated:
            return "DefaultPreemption", f"chooses {ours.nominated}, not {live.nominated}"
        return "", f"the live scheduler says: {live.message} We say: {ours.message}"

    async def _lag(
        self, live: LiveDecision, pod: Pod, moment: Moment, own: Sequence[Change]
    ) -> Neighbour | None:
        """The first neighbouring state that yields the live decision."""
        judges = [self._judge]
        judges += [self._others[number] for number in sorted(self._suspicion.named)[:1]]
        for state in moment.neighbours(live.pod, own):
            with self._taken_back(state.without), self._made(state.ahead):
                for judge in judges:
                    if (await judge.decide(pod)).agrees_with(live):
                        return state
        return None

    # -- other states ---------------------------------------------------------------------------

    @contextmanager
    def _taken_back(self, changes: Iterable[Change]) -> Iterator[None]:
        undone = list(changes)
        for one in undone:
            self._replay.revert(one)
        try:
            yield
        finally:
            for one in reversed(undone):
                self._replay.put(one.kind, one.old, one.new)

    @contextmanager
    def _made(self, binds: Sequence[Change]) -> Iterator[None]:
        """Bind pods that are pending now; others were created after the decision."""
        made: list[tuple[Change, Pod]] = []
        for one in binds:
            pending = self._copy.pending.get(one.new.metadata.uid)
            if pending is not None:
                self._replay.put(one.kind, pending.pod, one.new)
                made.append((one, pending.pod))
        try:
            yield
        finally:
            for one, before in reversed(made):
                self._replay.put(one.kind, one.new, before)

    @contextmanager
    def _without_nomination(self, pod: Pod) -> Iterator[None]:
        self._copy.nominator.delete(pod.metadata.uid)
        try:
            yield
        finally:
            pending = self._copy.pending.get(pod.metadata.uid)
            if pending is not None:
                self._copy.nominator.add(pending)


def _without_nomination(pod: Pod) -> Pod:
    return replace(pod, status=replace(pod.status, nominated_node_name=""))


def _agreement(ours: Judgement, live: LiveDecision) -> Outcome:
    if not live.node:
        return Outcome.REJECTED_ALIKE
    return Outcome.SAME_NODE if len(ours.best) == 1 else Outcome.EQUAL_SCORE


def _described(live: LiveDecision) -> str:
    if live.node:
        return live.node
    return f"nominated to {live.nominated}" if live.nominated else "no node"


def percentages(configuration: SchedulerConfiguration) -> Mapping[str, int]:
    """``percentageOfNodesToScore`` by profile, 0 if kube-scheduler is to find one itself."""
    return {
        one.scheduler_name: configuration.percentage_of_nodes_to_score
        if one.percentage_of_nodes_to_score is None
        else one.percentage_of_nodes_to_score
        for one in configuration.profiles
    }
