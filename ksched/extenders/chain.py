"""All extenders of a scheduler: the order of calls, and the consequences of failures.

Filters are called one after the other, each with the nodes that the previous ones left; scores are
requested concurrently. The scheduling cycle waits for the responses, everything else continues. The
nodes are those of the cycle's snapshot, however long a response takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

import numpy as np
from msgspec import Raw
from msgspec.structs import replace

from ksched.api.decoding import decode_node, decode_pod
from ksched.api.objects import Node, Pod
from ksched.api.whole_objects import decode_whole_node, whole_pod_decoder
from ksched.cache.node_info import NodeInfo
from ksched.cache.node_table import NodeTable
from ksched.cache.pod_info import PodInfo
from ksched.cache.snapshot import Snapshot
from ksched.clock import Clock
from ksched.configuration.extenders import Extender
from ksched.errors import ConfigError, ExtenderError
from ksched.extenders.extender import EXTENDER, Filtered, HttpExtender
from ksched.framework.diagnosis import Diagnosis, NodeStatuses, count_reasons, rejectors
from ksched.framework.runtime.filter_columns import NO_ROWS, Rows
from ksched.framework.runtime.node_search import Feasibility
from ksched.framework.runtime.score_columns import Scores
from ksched.framework.status import SUCCESS, Code, Status, unresolvable, unschedulable
from ksched.framework.victims import Victims
from ksched.transport import Guard

log = logging.getLogger(__name__)

T = TypeVar("T")


class Extenders:
    """The extenders in calling order: ignorable ones last."""

    def __init__(self, extenders: Iterable[HttpExtender] = ()) -> None:
        self._extenders = sorted(extenders, key=lambda one: one.is_ignorable)
        self._filters = [one for one in self._extenders if one.is_filter]
        self._prioritizers = [one for one in self._extenders if one.is_prioritizer]
        self._binders = [one for one in self._extenders if one.is_binder]
        self._preemptors = [one for one in self._extenders if one.supports_preemption]
        self._failing: set[HttpExtender] = set()

    def __len__(self) -> int:
        return len(self._extenders)

    @property
    def have_scores(self) -> bool:
        return bool(self._prioritizers)

    async def aclose(self) -> None:
        """Close connections; the next request opens one again."""
        for extender in self._extenders:
            await extender.client.aclose()

    # -- which objects are decoded completely ---------------------------------------------------

    def node_decoder(self) -> Callable[[bytes | Raw], Node]:
        """Return the node decoder; with complete JSON if an extender receives whole nodes."""
        readers = (*self._filters, *self._prioritizers)
        is_needed = any(not one.is_node_cache_capable for one in readers)
        return decode_whole_node if is_needed else decode_node

    def pod_decoder(self, scheduler_names: Collection[str]) -> Callable[[bytes | Raw], Pod]:
        """Return the pod decoder; complete JSON for pending pods, for all if victims need it."""
        readers = list(dict.fromkeys((*self._filters, *self._prioritizers, *self._preemptors)))
        if not readers:
            return decode_pod
        sends_victims = any(not one.is_node_cache_capable for one in self._preemptors)

        def is_sent(pod: Pod) -> bool:
            if pod.spec.node_name:
                return sends_victims
            is_ours = pod.spec.scheduler_name in scheduler_names
            return is_ours and any(one.is_interested(pod.spec) for one in readers)

        return whole_pod_decoder(is_sent)

    # -- filter ---------------------------------------------------------------------------------

    async def filter(self, pod: PodInfo, fit: Feasibility, snapshot: Snapshot) -> Feasibility:
        """Filter the feasible nodes; raises ``ExtenderError``.

        kube-scheduler: findNodesThatPassExtenders.
        """
        table, rows = snapshot.table, fit.rows
        answers: list[tuple[HttpExtender, Rows, Filtered]] = []
        for extender in self._filters:
            if not len(rows):
                break
            if not extender.is_interested(pod.spec):
                continue
            nodes = [table.infos[row] for row in rows.tolist()]
            filtered = await self._await(extender, pod, extender.filter(pod, nodes))
            if filtered is None:
                continue
            is_left = np.array([node.name in filtered.node_names for node in nodes], np.bool_)
            answers.append((extender, rows[~is_left], filtered))
            rows = rows[is_left]
        if len(rows) == len(fit.rows):
            return fit
        if len(rows):
            return replace(fit, rows=rows, is_cached=False)
        diagnosis = _diagnose(table, fit, answers)
        return replace(fit, rows=NO_ROWS, is_cached=False, diagnosis=diagnosis)

    # -- prioritize -----------------------------------------------------------------------------

    async def prioritize(self, pod: PodInfo, rows: Rows, snapshot: Snapshot) -> Scores | None:
        """Return weighted scores of some rows, summed; ``None`` if no extender is called.

        An extender that fails contributes no score, whether it is ignorable or not.
        """
        interested = [one for one in self._prioritizers if one.is_interested(pod.spec)]
        if not interested:
            return None
        nodes = [snapshot.table.infos[row] for row in rows.tolist()]
        async with asyncio.TaskGroup() as tasks:
            answers = [tasks.create_task(self._scores(one, pod, nodes)) for one in interested]
        total = np.zeros(len(nodes), np.int64)
        for answer in answers:
            scores = answer.result()
            total += np.array([scores.get(node.name, 0) for node in nodes], np.int64)
        return total

    async def _scores(
        self, extender: HttpExtender, pod: PodInfo, nodes: list[NodeInfo]
    ) -> Mapping[str, int]:
        try:
            scores = await extender.prioritize(pod, nodes)
        except ExtenderError as problem:
            self._failed(extender, pod, problem)
            return {}
        self._answered(extender)
        return scores

    # -- bind -----------------------------------------------------------------------------------

    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        """Bind a pod by an extender; ``None`` leaves it to the Bind plugins.

        kube-scheduler: extendersBinding.
        """
        for extender in self._binders:
            if not extender.is_interested(pod.spec):
                continue
            try:
                await extender.bind(pod, node_name)
            except ExtenderError as problem:
                if extender.is_ignorable:
                    self._failed(extender, pod, problem)
                    continue
                return failed_extender(problem)
            self._answered(extender)
            return SUCCESS
        return None

    # -- preempt --------------------------------------------------------------------------------

    async def process_preemption(
        self, pod: PodInfo, victims: Mapping[str, Victims], snapshot: Snapshot
    ) -> Mapping[str, Victims]:
        """Filter candidate preemptions by node; may return none. Raises ``ExtenderError``.

        An extender may remove nodes and change victims (preemption.go: callExtenders).
        """
        for extender in self._preemptors:
            if not victims or not extender.is_interested(pod.spec):
                continue
            request = extender.process_preemption(pod, victims, snapshot)
            chosen = await self._await(extender, pod, request)
            if chosen is None:
                continue
            empty = [node_name for node_name, one in chosen.items() if not one.pods]
            if empty and not extender.is_ignorable:
                what = f'expected at least one victim pod on node "{empty[0]}"'
                raise ExtenderError(f'extender "{extender.name}": {what}')
            victims = {node_name: one for node_name, one in chosen.items() if one.pods}
        return victims

    # -- failures -------------------------------------------------------------------------------

    async def _await(self, extender: HttpExtender, pod: PodInfo, answer: Awaitable[T]) -> T | None:
        """Await a response; ``None`` if it failed and the extender is ignorable."""
        try:
            result = await answer
        except ExtenderError as problem:
            if not extender.is_ignorable:
                raise
            self._failed(extender, pod, problem)
            return None
        self._answered(extender)
        return result

    def _failed(self, extender: HttpExtender, pod: PodInfo, problem: ExtenderError) -> None:
        """Log a failure that fails no pod: a warning when it begins, then at debug level."""
        level = logging.DEBUG if extender in self._failing else logging.WARNING
        self._failing.add(extender)
        fields = {"extender": extender.name, "pod": pod.key, "err": str(problem)}
        log.log(level, "going on without an extender", extra=fields)

    def _answered(self, extender: HttpExtender) -> None:
        if extender in self._failing:
            self._failing.discard(extender)
            log.info("extender answers again", extra={"extender": extender.name})


NO_EXTENDERS = Extenders()


def build_extenders(configs: Collection[Extender], clock: Clock, guard: Guard) -> Extenders:
    """Build every configured extender, or raise ``ConfigError`` with the problems of all.

    kube-scheduler: buildExtenders, NewHTTPExtender.
    """
    if not configs:
        return Extenders()
    # A scheduler without extenders, in process, needs no HTTP client.
    from ksched.extenders.http_client import HttpExtenderClient

    extenders: list[HttpExtender] = []
    problems: list[str] = []
    for index, config in enumerate(configs):
        try:
            client = HttpExtenderClient(config, clock, guard)
        except ValueError as problem:
            problems.append(f"extenders[{index}].{problem}")
            continue
        extenders.append(HttpExtender(config, client))
    if problems:
        raise ConfigError(problems)
    return Extenders(extenders)


def failed_extender(problem: ExtenderError) -> Status:
    """The status of an attempt that an extender failed."""
    return Status(Code.ERROR, (str(problem),), EXTENDER)


def _diagnose(
    table: NodeTable, fit: Feasibility, answers: list[tuple[HttpExtender, Rows, Filtered]]
) -> Diagnosis:
    """Build the diagnosis when extenders left no node; their statuses override the plugins'."""
    numbers: dict[Status, int] = {}
    codes, first = fit.codes.copy(), len(fit.book.statuses) + 1

    def put(row: int, status: Status) -> None:
        codes[row] = numbers.setdefault(status.by(EXTENDER), first + len(numbers))

    for extender, dropped, filtered in answers:
        # Without a message: kube-scheduler has no reason for it and preemption skips the node.
        silent = unresolvable(f'node(s) were left out by extender "{extender.name}"')
        for row in dropped.tolist():
            put(row, silent)
        said = {name: unschedulable(message) for name, message in filtered.failed.items()}
        said |= {name: unresolvable(message) for name, message in filtered.unresolvable.items()}
        for name, status in said.items():
            if name in table.rows:
                put(table.rows[name], status)
    statuses = NodeStatuses(table, codes, [*fit.book.statuses, *numbers])
    by_plugins = NodeStatuses(table, fit.codes, fit.book.statuses).counted()
    rejecting, pending = rejectors(status for status, _ in by_plugins)
    return Diagnosis(
        num_all_nodes=len(table),
        reasons=count_reasons(statuses.counted()),
        unschedulable_plugins=rejecting | {EXTENDER},
        pending_plugins=pending,
        node_statuses=statuses,
    )
