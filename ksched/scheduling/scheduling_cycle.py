"""The scheduling cycle: from a popped pod to the node it is assumed on, or the reasons against.

Serialized: the next pod's cycle begins after this one has decided. It awaits only async plugins,
extenders, and per-node plugins over many nodes; the snapshot does not change meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ksched.cache.cache import SchedulerCache
from ksched.cache.pod_info import PodInfo
from ksched.configuration.extension_points import FILTER, PERMIT, POST_FILTER, PRE_FILTER, RESERVE
from ksched.errors import ExtenderError
from ksched.extenders.chain import NO_EXTENDERS, Extenders, failed_extender
from ksched.framework.cycle_state import CycleState
from ksched.framework.diagnosis import (
    NO_NODES_AVAILABLE,
    Diagnosis,
    NodeStatuses,
    count_reasons,
    rejectors,
)
from ksched.framework.interface import PostFilterResult
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.filter_columns import Rows
from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.framework.runtime.node_search import EVERYWHERE, Feasibility, Search
from ksched.framework.runtime.permit_calls import PermitCalls
from ksched.framework.runtime.profiles import Profile
from ksched.framework.runtime.reserve_to_post_bind import run_permit, run_reserve, run_unreserve
from ksched.framework.runtime.score_columns import Scores
from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.framework.status import (
    SUCCESS,
    Code,
    Status,
    error,
    joined,
    unresolvable,
    unschedulable,
)
from ksched.framework.untrusted_values import is_text
from ksched.queue.nominator import Nominations, Nominator
from ksched.scheduling.quorum_gate import QuorumGate
from ksched.unexpected_errors import UnexpectedErrors

log = logging.getLogger(__name__)

SNAPSHOT_SLICE = 200
"""How many changed nodes are published before yielding to the event loop: about 4 ms of work."""

BLIND_DRAWS = 2
"""Random draws before the rows with the highest score are listed: where many share it, a draw
usually hits one, which is quicker and equally uniform."""


class Placed(Struct, frozen=True):
    """A pod assumed and reserved on a node; its binding cycle follows.

    kube-scheduler: ScheduleResult.
    """

    queued: QueuedPodInfo
    pod: PodInfo
    """The pod as assigned to the node."""
    node_name: str
    profile: Profile
    state: CycleState
    evaluated_nodes: int
    feasible_nodes: int
    gate: QuorumGate | None = None
    """Where the pod waits for the others of its group before it is bound."""


class Rejected(Struct, frozen=True):
    """An attempt that ended without a placement: a rejection or an error (``status``).

    ``nominated_node_name`` of ``None`` leaves the nomination unchanged, "" clears it.
    """

    queued: QueuedPodInfo
    profile: Profile
    status: Status
    diagnosis: Diagnosis | None = None
    nominated_node_name: str | None = ""
    text: str = ""
    """The message, if it is not that of the diagnosis."""

    @property
    def message(self) -> str:
        if self.text:
            return self.text
        return self.diagnosis.message if self.diagnosis else self.status.message


class CycleObserver(Protocol):
    """Sees every decision about a single pod: what it is made on, and what it is."""

    def began(self, queued: QueuedPodInfo, profile: Profile) -> None: ...

    def ended(self, outcome: Placed | Rejected) -> None: ...


class SchedulingCycle:
    """Schedules one pod at a time on the cache's snapshot."""

    def __init__(
        self,
        *,
        cache: SchedulerCache,
        profiles: Mapping[str, Profile],
        nominator: Nominator,
        waiting: WaitingPods,
        permit_calls: PermitCalls,
        rng: random.Random,
        unexpected_errors: UnexpectedErrors,
        extenders: Extenders = NO_EXTENDERS,
    ) -> None:
        self._cache = cache
        self._profiles = profiles
        self._nominator = nominator
        self._waiting = waiting
        self._permit_calls = permit_calls
        self._rng = rng
        self._unexpected_errors = unexpected_errors
        self._extenders = extenders
        self.observer: CycleObserver | None = None
        self.is_running = False
        """Whether a cycle of a pod or a group is in progress; what it reads must not change."""

    async def run(self, queued: QueuedPodInfo) -> Placed | Rejected:
        """Place a pod or return the reasons; cache and Reserve plugins are left consistent.

        kube-scheduler: schedulingCycle, schedulingAlgorithm, schedulePod.
        """
        self.is_running = True
        profile = self.profile_of(queued)
        profile.metrics.executions.next_cycle()
        try:
            await self.update_snapshot()
            if self.observer is not None:
                self.observer.began(queued, profile)
            state = CycleState()
            fit = await self.find_nodes(profile, state, queued.pod)
            if isinstance(fit, Diagnosis):
                return await self.run_post_filter(profile, state, queued, fit)
            node_name = await self.choose(profile, state, queued.pod, fit)
            return await self._assume_reserve_permit(profile, state, queued, node_name, fit)
        except PluginFailure as failed:
            profile.metrics.end(failed.status.code)
            return Rejected(queued, profile, failed.status)
        except ExtenderError as problem:
            return Rejected(queued, profile, failed_extender(problem))
        except Exception as problem:  # noqa: BLE001 - reported
            text = self._unexpected_errors.report("attempt", queued.key, problem)
            profile.metrics.end(Code.ERROR)
            return Rejected(queued, profile, error(text))
        finally:
            self.is_running = False

    def profile_of(self, queued: QueuedPodInfo) -> Profile:
        """kube-scheduler: frameworkForPod."""
        return self._profiles[queued.pod.template.spec.scheduler_name]

    async def update_snapshot(self) -> None:
        """Bring what decisions are made on up to date; long work lets the event loop run."""
        while len(self._cache.changed_nodes) > SNAPSHOT_SLICE:
            self._cache.update_snapshot(SNAPSHOT_SLICE)
            await asyncio.sleep(0)
        self._cache.update_snapshot()

    # -- filter ---------------------------------------------------------------------------------

    async def find_nodes(
        self, profile: Profile, state: CycleState, pod: PodInfo
    ) -> Feasibility | Diagnosis:
        """kube-scheduler: findNodesThatFitPod."""
        snapshot = self._cache.snapshot
        if not len(snapshot):
            raise PluginFailure(unresolvable(NO_NODES_AVAILABLE))
        pipeline = profile.pipeline
        profile.metrics.begin(PRE_FILTER)
        status, names, narrowing = await pipeline.run_pre_filter(state, pod)
        profile.metrics.end(status.code)
        if not status.is_success:
            return self._rejected_by_pre_filter(status, narrowing)
        nominated = self._expected_beside(pod)
        # The local nomination may be newer than the pod's status.
        name = self._nominator.node_of(pod.uid) or pod.pod.status.nominated_node_name
        if name and (names is None or name in names):
            fit = await self._on_nominated_node(profile, state, pod, name, nominated)
            if fit is not None:
                return fit
        search = self._search(profile, names, narrowing, nominated)
        profile.metrics.begin(FILTER)
        fit = await pipeline.find_nodes_that_fit(state, pod, search)
        profile.metrics.end()
        if search.limit is not None:
            profile.next_start_node_index = (search.start + fit.evaluated) % len(snapshot)
        if len(self._extenders):
            fit = await self._extenders.filter(pod, fit, snapshot)
        if fit.diagnosis is None:
            return fit
        # Nodes excluded by PreFilter wait for events of the plugins that excluded them.
        plugins = fit.diagnosis.unschedulable_plugins.union(narrowing)
        return replace(fit.diagnosis, unschedulable_plugins=plugins) if narrowing else fit.diagnosis

    def _search(
        self,
        profile: Profile,
        names: frozenset[str] | None,
        narrowing: list[str],
        nominated: Nominations | None,
    ) -> Search:
        """Return the search space after PreFilter."""
        snapshot = self._cache.snapshot
        if names is not None:
            rows = snapshot.table.rows
            plugins = " ".join(sorted(narrowing))
            return Search(
                only=np.array(sorted(rows[name] for name in names if name in rows), np.intp),
                status_of_others=unresolvable(f"node(s) didn't satisfy plugin(s) [{plugins}]"),
                nominated=nominated,
            )
        considered = len(snapshot)
        limit = num_feasible_nodes_to_find(profile.percentage_of_nodes_to_score, considered)
        if limit == considered:
            return Search(nominated=nominated) if nominated else EVERYWHERE
        start = profile.next_start_node_index % considered
        return Search(nominated=nominated, limit=limit, start=start)

    def _rejected_by_pre_filter(self, status: Status, narrowing: list[str]) -> Diagnosis:
        """All nodes get the status; kube-scheduler prints it once instead of counting."""
        unschedulable_plugins, pending = rejectors([status])
        return Diagnosis(
            num_all_nodes=len(self._cache.snapshot),
            unschedulable_plugins=unschedulable_plugins.union(narrowing),
            pending_plugins=pending,
            pre_filter_message=status.message,
            node_statuses=NodeStatuses.same_for_all(self._cache.snapshot.table, status),
            is_momentary=status.is_momentary,
        )

    def _expected_beside(self, pod: PodInfo) -> Nominations | None:
        """The nominated pods of at least this priority, if there are any."""
        if not len(self._nominator):
            return None
        return self._nominator.expected_with(pod) or None

    async def _on_nominated_node(
        self,
        profile: Profile,
        state: CycleState,
        pod: PodInfo,
        name: str,
        nominated: Nominations | None,
    ) -> Feasibility | None:
        """Filter the nominated node alone; if it fits, no other node is tried.

        kube-scheduler: evaluateNominatedNode.
        """
        row = self._cache.snapshot.table.rows.get(name)
        if row is None:
            return None
        profile.metrics.begin(FILTER)
        fit = profile.pipeline.fit_by_cache(state, pod, row, nominated)
        if fit is None:
            search = Search(only=np.array([row], np.intp), nominated=nominated)
            fit = await profile.pipeline.find_nodes_that_fit(state, pod, search)
        profile.metrics.end()
        try:
            fit = await self._extenders.filter(pod, fit, self._cache.snapshot)
        except ExtenderError as problem:
            log.warning(
                "nominated node not evaluated",
                extra={"pod": pod.key, "node": name, "err": str(problem)},
            )
            return None
        return fit if len(fit.rows) else None

    async def fits_on(self, profile: Profile, pod: PodInfo, row: int) -> bool:
        """Whether a pod could be on one node."""
        state, name = CycleState(), self._cache.snapshot.table.infos[row].name
        status, names, _ = await profile.pipeline.run_pre_filter(state, pod)
        if not status.is_success or (names is not None and name not in names):
            return False
        nominated = self._expected_beside(pod)
        return await self._on_nominated_node(profile, state, pod, name, nominated) is not None

    async def judge_everywhere(self, profile: Profile, pod: PodInfo) -> NodeStatuses:
        """What the filters say about every node, wherever the pod is nominated to."""
        table = self._cache.snapshot.table
        fit = await self.fit_everywhere(profile, CycleState(), pod)
        if isinstance(fit, Status):
            return NodeStatuses.same_for_all(table, fit)
        return NodeStatuses(table, fit.codes, fit.book.statuses)

    async def fit_everywhere(
        self, profile: Profile, state: CycleState, pod: PodInfo
    ) -> Feasibility | Status:
        """Filter all nodes without extenders; a status if PreFilter rejects the pod."""
        status, names, narrowing = await profile.pipeline.run_pre_filter(state, pod)
        if not status.is_success:
            return status
        search = self._search(profile, names, narrowing, self._expected_beside(pod))
        return await profile.pipeline.find_nodes_that_fit(state, pod, replace(search, limit=None))

    # -- score and select -----------------------------------------------------------------------

    async def choose(
        self, profile: Profile, state: CycleState, pod: PodInfo, fit: Feasibility
    ) -> str:
        """The name of one of the nodes that scored best (prioritizeNodes, selectHost)."""
        infos = self._cache.snapshot.table.infos
        has_scoring = profile.framework.scores or self._extenders.have_scores
        if len(fit.rows) == 1 or not has_scoring:
            return infos[int(fit.rows[self._rng.randrange(len(fit.rows))])].name
        rows, totals = await profile.pipeline.prioritize_nodes(state, pod, fit)
        if self._extenders.have_scores:
            more = await self._extenders.prioritize(pod, fit.rows, self._cache.snapshot)
            if more is not None:
                rows, totals = fit.rows, (totals[fit.rows] if rows is None else totals) + more
        return infos[select_host(rows, totals, self._rng)].name

    # -- post_filter ----------------------------------------------------------------------------

    async def run_post_filter(
        self, profile: Profile, state: CycleState, queued: QueuedPodInfo, diagnosis: Diagnosis
    ) -> Rejected:
        """Run PostFilter plugins, which may make the pod schedulable (preemption).

        They run until one returns success, an error, or UnschedulableAndUnresolvable. Their
        messages are added to the diagnosis: the current attempt fails in any case.

        kube-scheduler: RunPostFilterPlugins.
        """
        reasons: tuple[str, ...] = ()
        nominated: str | None = None
        status = SUCCESS
        is_large = queued.pod.template.is_large
        if is_large:
            await asyncio.sleep(0)
        if profile.framework.hooks[POST_FILTER]:
            profile.metrics.begin(POST_FILTER)
        for hook in profile.framework.hooks[POST_FILTER]:
            status, result = await _run_post_filter_plugin(hook, state, queued.pod, diagnosis)
            if status.is_success:
                reasons, nominated = (), result
                break
            if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE or not status.is_rejected:
                reasons, nominated = status.reasons, result
                break
            reasons += status.reasons
            nominated = nominated if result is None else result
        profile.metrics.end(status.code)
        if is_large:
            await asyncio.sleep(0)
        is_helped = bool(nominated) or not (status.is_rejected or status is SUCCESS)
        explained = replace(
            diagnosis,
            node_statuses=None,
            shared_wait=None,
            post_filter_message=joined(reasons),
            holds_for_template=not is_helped
            and profile.pipeline.holds_for_template(state, queued.pod, diagnosis),
        )
        status = unschedulable(explained.message)
        return Rejected(queued, profile, status, explained, nominated)

    # -- assume, reserve, permit ----------------------------------------------------------------

    async def _assume_reserve_permit(
        self,
        profile: Profile,
        state: CycleState,
        queued: QueuedPodInfo,
        node_name: str,
        fit: Feasibility,
    ) -> Placed | Rejected:
        """Take the node for the pod, in the cache, then Reserve, then Permit; all or nothing.

        kube-scheduler: assumeAndReserve.
        """
        pod = queued.pod.on_node(node_name)
        if self._cache.get_pod(pod.uid) is not None:
            # Another client bound it while an async plugin ran.
            known = f"pod {pod.uid}({pod.key}) is in the cache, so can't be assumed"
            return Rejected(queued, profile, error(known))
        self._cache.assume_pod(pod)
        self._nominator.delete(pod.uid)
        placed = Placed(queued, pod, node_name, profile, state, fit.evaluated, len(fit.rows))
        try:
            status = SUCCESS
            if profile.framework.hooks[RESERVE]:
                profile.metrics.begin(RESERVE)
                status = await run_reserve(profile.framework, state, pod, node_name)
                profile.metrics.end(status.code)
            if status.is_success and profile.framework.hooks[PERMIT]:
                status = self.permit(placed)
        except PluginFailure as failed:
            status = failed.status
            profile.metrics.end(status.code)
        except BaseException:
            unreserve_and_forget(self._cache, placed)
            raise
        if not (status.is_success or status.is_wait):
            unreserve_and_forget(self._cache, placed)
            return Rejected(queued, profile, status, one_node_diagnosis(status))
        return placed

    def permit(self, placed: Placed) -> Status:
        """Run Permit plugins; on WAIT the pod is held while async ones are still running.

        kube-scheduler: prepareForBindingCycle.
        """
        pod, state, profile = placed.pod, placed.state, placed.profile
        profile.metrics.begin(PERMIT)
        permission = run_permit(profile.framework, state, pod, placed.node_name)
        profile.metrics.end(permission.status.code)
        if permission.status.is_wait:
            state.decided()
            waiting = self._waiting.hold(pod, placed.node_name, permission.waits)
            for hook, answer in permission.calls:
                self._permit_calls.start(hook, answer, state, waiting, profile.metrics)
        return permission.status


def unreserve_and_forget(cache: SchedulerCache, placed: Placed) -> None:
    """Undo Reserve in the plugins and the assumption in the cache."""
    run_unreserve(placed.profile.framework, placed.state, placed.pod, placed.node_name)
    # Otherwise it was deleted, confirmed by the watch, or placed by a later attempt.
    if cache.is_assumed(placed.pod.uid) and cache.get_pod(placed.pod.uid) is placed.pod:
        cache.forget_pod(placed.pod)


async def _run_post_filter_plugin(
    hook: Hook, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
) -> tuple[Status, str | None]:
    """Run one plugin; a failure becomes its result, since the attempt has failed already.

    kube-scheduler: runPostFilterPlugin.
    """
    try:
        result = await hook.acall(state, pod, diagnosis)
        if not isinstance(result, PostFilterResult):
            raise hook.contract_violation(result, "a PostFilterResult")
        nominated = result.nominated_node_name
        if nominated is not None and not is_text(nominated):
            raise hook.contract_violation(nominated, "a node's name")
        return hook.status(result.status), nominated
    except PluginFailure as failed:
        return failed.status, None


def one_node_diagnosis(status: Status) -> Diagnosis | None:
    """The diagnosis of a rejection after a node was selected: one node, one status."""
    if not status.is_rejected:
        return None
    unschedulable_plugins, pending = rejectors([status])
    return Diagnosis(
        num_all_nodes=1,
        reasons=count_reasons([(status, 1)]),
        unschedulable_plugins=unschedulable_plugins,
        pending_plugins=pending,
    )


def select_host(rows: Rows | None, totals: Scores, rng: random.Random) -> int:
    """Return the row with the highest total; ties are broken uniformly at random."""
    # NumPy's argmax is quicker than its max.
    item, count, draw = totals.item, len(totals), rng.random
    highest = item(totals.argmax())
    for _ in range(BLIND_DRAWS):
        choice = int(draw() * count)
        if item(choice) == highest:
            break
    else:
        best = (totals == highest).nonzero()[0]
        choice = int(best[int(draw() * len(best))])
    return choice if rows is None else int(rows[choice])


def num_feasible_nodes_to_find(percentage: int, nodes: int) -> int:
    """How many feasible nodes end the search (schedule_one.go: numFeasibleNodesToFind, v1.36).

    A percentage of 0 means all nodes: evaluating all is cheap here and gives better placements.
    """
    if nodes < 100 or percentage == 0 or percentage >= 100:
        return nodes
    return max(nodes * percentage // 100, 100)
