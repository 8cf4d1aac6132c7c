"""Filters on nodes with pods added or removed (dry runs).

One node at a time on a copy of the node and of the plugins' state, which is exact for every plugin;
or many at once where amounts alone decide.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

import numpy as np

from ksched.api.quantity import clamp_to_int64
from ksched.cache.dry_run_table import DryRunTable
from ksched.cache.node_info import NodeInfo
from ksched.cache.node_table import Ints, NodeRows, NodeTable
from ksched.cache.pod_info import PodInfo
from ksched.cache.recently_used import RecentlyUsed
from ksched.cache.snapshot import Snapshot
from ksched.framework.cycle_state import CycleState
from ksched.framework.depends_on import Scope
from ksched.framework.runtime.codes import CodeBook, Codes
from ksched.framework.runtime.filter_columns import FilterEntry, Work
from ksched.framework.runtime.framework import Framework
from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.framework.status import SUCCESS, Code, Status
from ksched.framework.untrusted_values import safe_error_text
from ksched.framework.verdicts import Verdicts
from ksched.queue.nominator import ExpectedPods
from ksched.tuning import SKIPPED_SETS_CACHED

log = logging.getLogger(__name__)

_PLAIN_SCOPES = (Scope.NODE, Scope.RESOURCES)


class DryRunFilters:
    """Runs one profile's filters over hypothetical nodes."""

    def __init__(self, framework: Framework, snapshot: Snapshot, work: Work) -> None:
        self._framework = framework
        self._snapshot = snapshot
        self._work = work
        self._columns: NodeRows | None = None
        self._plain: RecentlyUsed[frozenset[str], tuple[list[FilterEntry], bool]] = RecentlyUsed()
        """Which filters decide by amounts, and whether these are all, by what is skipped."""
        self._followers = frozenset(
            hook.plugin for hook in (*framework.add_pod, *framework.remove_pod)
        )

    def filter_with_nominated(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, nominated: Sequence[PodInfo]
    ) -> Status:
        """Run the filters on one node, first with the nominated pods on it, then without.

        With them, because they will use resources; without, because they may not come, and a pod
        must not depend on an affinity to them.

        kube-scheduler: RunFilterPluginsWithNominatedPods.
        """
        if nominated:
            crowded, crowded_state = node.clone(), _clone(state)
            for other in nominated:
                self.add_pod(crowded_state, pod, other, crowded)
            status = self.filter_node(crowded_state, pod, crowded)
            if not status.is_success:
                return status
        return self.filter_node(state, pod, node)

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Run the filters on one node, real or modified; the first rejection wins.

        kube-scheduler: RunFilterPlugins.
        """
        nodes = self._as_columns(node)
        book = CodeBook()
        for entry in self._framework.filters:
            if entry.name in state.skip_filter:
                continue
            self._work.rows_filtered += 1
            if not entry.is_columnar:
                verdicts = Verdicts.of([entry.hook.status(entry.hook.call(state, pod, node))])
            else:
                verdicts = entry.hook.call(state, pod, nodes)
            codes = book.translate(entry.hook, entry.position, verdicts, 1)
            if codes is not None:
                return book.status(int(codes[0]))
        return SUCCESS

    def _as_columns(self, node: NodeInfo) -> NodeRows:
        """Return a table of one node; cached, since a dry run uses the same node repeatedly."""
        if self._columns is None or self._columns.table.infos[0] is not node:
            self._columns = NodeTable.of([node], self._snapshot.table.axis).all()
        else:
            self._columns.table.put_pods(0, node)
        return self._columns

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Add a pod to a copied node and to the plugins' state.

        kube-scheduler: RunPreFilterExtensionAddPod.
        """
        node.add_pod(added)
        _extend(self._framework.add_pod, state, pod, added, node)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        """Remove a pod from a copied node and from the plugins' state.

        kube-scheduler: RunPreFilterExtensionRemovePod.
        """
        node.remove_pod(removed.uid)
        for port in removed.template.host_ports:
            # Matters only if two pods with the same port were put on the node bypassing the
            # scheduler; kube-scheduler's dry run frees the port with the first of them.
            node.used_ports.pop(port, None)
        _extend(self._framework.remove_pod, state, pod, removed, node)

    def resource_filters(
        self,
        state: CycleState,
        pod: PodInfo,
        nodes: DryRunTable,
        nominated: Mapping[str, ExpectedPods],
    ) -> ResourceFilters:
        """The filters up to the first that reads more than node objects and amounts."""
        entries, is_complete = self._plain_filters(state)
        return ResourceFilters(entries, is_complete, state, pod, nodes, nominated, self._work)

    def decides_by_amounts(self, state: CycleState) -> bool:
        """Whether ``resource_filters`` of an attempt are all its filters."""
        return self._plain_filters(state)[1]

    def _plain_filters(self, state: CycleState) -> tuple[list[FilterEntry], bool]:
        skipped = frozenset(state.skip_filter)
        known = self._plain.get(skipped)
        if known is None:
            active = [one for one in self._framework.filters if one.name not in skipped]
            entries = list(takewhile(self._is_plain, active))
            known = entries, len(entries) == len(active)
            self._plain.put(skipped, known, SKIPPED_SETS_CACHED)
        return known

    def _is_plain(self, entry: FilterEntry) -> bool:
        return entry.scope in _PLAIN_SCOPES and entry.name not in self._followers


class ResourceFilters:
    """The verdicts of one attempt on a dry-run table, as far as amounts decide them."""

    def __init__(
        self,
        entries: Sequence[FilterEntry],
        is_complete: bool,
        state: CycleState,
        pod: PodInfo,
        nodes: DryRunTable,
        nominated: Mapping[str, ExpectedPods],
        work: Work,
    ) -> None:
        self.is_complete = is_complete
        """Whether a node without a rejection here passes all filters."""
        self._state = state
        self._pod = pod
        self._nodes = nodes
        self._work = work
        self._book = CodeBook()
        self._expected = _expected_amounts(nodes, nominated)
        self._by_amounts = [entry for entry in entries if entry.scope is Scope.RESOURCES]
        self._by_node: Codes = np.zeros(len(nodes), np.int32)
        for entry in entries:
            if entry.scope is Scope.NODE:
                self._by_node = self._evaluate(entry, self._by_node, is_changed=False)

    def judge(self) -> Codes:
        """Return the numbers of the nodes' statuses; 0 where none rejects.

        Evaluated with the nominated pods added to the table's amounts, and without them.
        """
        if self._expected is None:
            return self._run()
        before = self._nodes.add(self._expected)
        crowded = self._run()
        self._nodes.amounts[:] = before
        if crowded.all():
            return crowded
        return np.where(crowded, crowded, self._run())

    def status(self, code: int) -> Status:
        return self._book.status(code)

    def _run(self) -> Codes:
        codes = self._by_node
        for entry in self._by_amounts:
            codes = self._evaluate(entry, codes, is_changed=True)
        return codes

    def _evaluate(self, entry: FilterEntry, codes: Codes, *, is_changed: bool) -> Codes:
        nodes = self._nodes.all() if is_changed else self._nodes.original
        self._work.rows_filtered += len(nodes)
        verdicts = entry.hook.call(self._state, self._pod, nodes)
        rejected = self._book.translate(entry.hook, entry.position, verdicts, len(nodes))
        return codes if rejected is None else self._book.first(codes, rejected)


def _expected_amounts(nodes: DryRunTable, nominated: Mapping[str, ExpectedPods]) -> Ints | None:
    """Return what the nominated pods would add to the amounts; ``None`` if there are none."""
    # By line: filling an array cell by cell costs ten times as much.
    lines: dict[int, list[int]] = {}
    fewer: Iterable[str] = nodes.rows if len(nodes.rows) < len(nominated) else nominated
    for node_name in fewer:
        position, expected = nodes.rows.get(node_name), nominated.get(node_name)
        if position is not None and expected is not None:
            for line, amount in expected.amounts.items():
                if line not in lines:
                    lines[line] = [0] * len(nodes)
                lines[line][position] = clamp_to_int64(amount)
    if not lines:
        return None
    amounts = np.zeros_like(nodes.amounts)
    for line, column in lines.items():
        amounts[line] = column
    return amounts


def _clone(state: CycleState) -> CycleState:
    try:
        return state.clone()
    except Exception as problem:
        # Only the traceback shows the plugin: keys are chosen by the plugins.
        log.exception("cycle state cannot be copied")
        text = f"copying the cycle state: {safe_error_text(problem)}"
        raise PluginFailure(Status(Code.ERROR, (text,))) from problem


def _extend(
    hooks: Sequence[Hook], state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo
) -> None:
    for hook in hooks:
        if hook.plugin in state.skip_filter:
            continue
        status = hook.status(hook.call(state, pod, other, node))
        if not status.is_success:
            raise disallowed(hook, status)


def disallowed(hook: Hook, status: Status) -> PluginFailure:
    """The failure for a status that the extension point does not allow."""
    return PluginFailure(Status(Code.ERROR, (f"{hook.activity}: {status.message}",), hook.plugin))
