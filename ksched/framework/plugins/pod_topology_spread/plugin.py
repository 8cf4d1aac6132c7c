"""PodTopologySpread: spreads pods over zones, hosts or any other node label.

How pods are counted by the values of a label, and only changes are evaluated: docs/counters.md.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from ksched.api.label_selectors import InvalidSelector
from ksched.api.objects import Node, Pod
from ksched.clock import stopwatch
from ksched.configuration.plugin_args import PodTopologySpreadArgs
from ksched.framework import (
    SKIP,
    SKIP_TEMPLATE,
    SUCCESS,
    Action,
    ChangedVerdicts,
    ClassScores,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    FilterDependsOn,
    Listers,
    NodeInfo,
    NodeRows,
    PodInfo,
    PodTemplate,
    QueueingHint,
    Resource,
    Scope,
    ScoreDependsOn,
    Snapshot,
    Status,
    Verdicts,
    error,
)
from ksched.framework.counters import Ids, Ints, PerTemplate, PodLedger, counters_of
from ksched.framework.node_columns import NodeTable
from ksched.framework.plugins import names
from ksched.framework.plugins.default_selector import DefaultSelectors
from ksched.framework.plugins.pod_topology_spread.constraints import (
    DO_NOT_SCHEDULE,
    SCHEDULE_ANYWAY,
    SYSTEM_DEFAULTS,
    Constraint,
    TrackedConstraint,
    are_to_be_compiled,
    compile_constraints,
    compiling_own_constraints,
    has_all_keys,
    own_constraints,
    track,
)
from ksched.framework.plugins.pod_topology_spread.filtering import (
    HardConstraints,
    HardSpread,
    Unlabelled,
)
from ksched.framework.plugins.pod_topology_spread.scoring import SoftSpread, SpreadScores
from ksched.framework.time_slices import in_slices, within_budget
from ksched.steps import Steps

_SCORES = f"{names.POD_TOPOLOGY_SPREAD}/score"


class PodTopologySpread:
    """Spreads the pods that a constraint selects evenly over the values of a node label.

    A hard constraint (``whenUnsatisfiable: DoNotSchedule``) rejects a node if the pod would make
    the skew of its domain against the emptiest one exceed ``maxSkew`` (reason: ``node(s) didn't
    match pod topology spread constraints``), and nodes without the label (the same reason, with
    ``(missing required label)``). ``minDomains``, ``nodeAffinityPolicy``, ``nodeTaintsPolicy`` and
    ``matchLabelKeys`` work as documented by Kubernetes. Soft constraints (``ScheduleAnyway``)
    prefer nodes in emptier domains.

    A pod without constraints gets default ones over the pods of its services and its controller.
    Arguments: ``defaultingType`` is ``System`` (prefer different hosts and zones) or ``List``,
    which uses ``defaultConstraints``; an empty list turns defaults off.
    """

    name: ClassVar[str] = names.POD_TOPOLOGY_SPREAD
    score_depends_on: ClassVar = ScoreDependsOn(Scope.CLUSTER)

    def __init__(
        self,
        args: PodTopologySpreadArgs | None,
        listers: Listers,
        now: Callable[[], float] = stopwatch,
    ) -> None:
        self._now = now
        self.filter_depends_on = FilterDependsOn(
            Scope.CLUSTER,
            changes=self._filter_changes,
            group=self._filter_group,
            reads_claim_names=False,
        )
        args = args or PodTopologySpreadArgs()
        self._is_system_defaulted = args.defaulting_type == "System"
        constraints = SYSTEM_DEFAULTS if self._is_system_defaulted else args.default_constraints
        self._defaults = {
            action: compile_constraints(constraints, {}, action)
            for action in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)
        }
        self._selectors = DefaultSelectors(listers) if constraints else None
        self._cached: dict[str, PerTemplate[_Cached]] = {
            DO_NOT_SCHEDULE: PerTemplate(),
            SCHEDULE_ANYWAY: PerTemplate(),
        }
        self._shared: WeakValueDictionary[Hashable, _Cached] = WeakValueDictionary()

    def sweep(self) -> None:
        for cache in self._cached.values():
            cache.sweep()

    # -- constraints ----------------------------------------------------------------------------

    def _constraints(self, template: PodTemplate, action: str) -> tuple[Constraint, ...]:
        """Return the pod's own constraints or the default ones; raises ``InvalidSelector``."""
        if template.spec.topology_spread_constraints:
            return own_constraints(template, action)
        defaults = self._defaults[action]
        if not defaults or self._selectors is None:
            return ()
        selector = self._selectors.of(template)
        if selector.empty:
            return ()
        return tuple(constraint._replace(selector=selector) for constraint in defaults)

    def _skip(self, template: PodTemplate, action: str) -> Status:
        """Defaults depend on services; a pod's own constraints are fixed with the template."""
        has_defaults = self._defaults[action] and not template.spec.topology_spread_constraints
        return SKIP if has_defaults else SKIP_TEMPLATE

    def _caught_up(
        self,
        constraints: tuple[Constraint, ...],
        template: PodTemplate,
        table: NodeTable,
        action: str,
    ) -> _Cached | None:
        """Return the cached state of a template, with up-to-date counters.

        ``None`` if all labels are required and no node has one of them: no node counts then,
        however many constraints there are.
        """
        cached = self._cached[action].get(counters_of(table), template)
        generation = table.labels.generation
        if (
            cached is None
            or cached.constraints != constraints
            or cached.labels_generation != generation
        ):
            require_all = action == DO_NOT_SCHEDULE or self._requires_all_keys(template)
            if require_all and not all(one.topology_key in table.labels for one in constraints):
                return None
            cached = self._shared_state(constraints, template, counters_of(table), require_all)
            cached.labels_generation = generation
            self._cached[action].put(template, cached)
        for one in cached.tracked:
            one.domains.catch_up()
        return cached

    def _shared_state(
        self,
        constraints: tuple[Constraint, ...],
        template: PodTemplate,
        ledger: PodLedger,
        require_all_keys: bool,
    ) -> _Cached:
        """Return the state shared by all templates that the constraints cannot distinguish."""
        counts_itself = tuple(one.selector.matches(template.labels) for one in constraints)
        key = (template.claimless_signature, constraints, counts_itself, require_all_keys)
        cached = self._shared.get(key)
        if cached is None or cached.ledger is not ledger:
            tracked = track(constraints, template, ledger, require_all_keys=require_all_keys)
            cached = self._shared[key] = _Cached(constraints, tracked, ledger)
        return cached

    def _requires_all_keys(self, template: PodTemplate) -> bool:
        """Under the system defaults a node without a zone is still scored by its hostname."""
        return bool(template.spec.topology_spread_constraints) or not self._is_system_defaulted

    # -- filter ---------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> Status | Coroutine[Any, Any, Status]:
        if are_to_be_compiled(pod.template):
            return in_slices(self._compiling_first(state, pod, snapshot), self._now)
        return self._pre_filter(state, pod, snapshot)

    def _compiling_first(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> Steps[Status]:
        yield from within_budget(compiling_own_constraints(pod.template), self._now)
        return self._pre_filter(state, pod, snapshot)

    def _pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        try:
            constraints = self._constraints(pod.template, DO_NOT_SCHEDULE)
        except InvalidSelector as problem:
            return error(f"obtaining pod's hard topology spread constraints: {problem}")
        if not constraints:
            return self._skip(pod.template, DO_NOT_SCHEDULE)
        cached = self._caught_up(constraints, pod.template, snapshot.table, DO_NOT_SCHEDULE)
        if cached is None:
            state.write(self.name, _UNLABELLED)
            return SUCCESS
        if cached.hard is None:
            cached.hard = HardConstraints(cached.tracked)
        state.write(self.name, cached.hard.judge_now())
        return SUCCESS

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status:
        state.read(self.name, HardSpread).update(pod, added, node, 1)
        return SUCCESS

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> Status:
        state.read(self.name, HardSpread).update(pod, removed, node, -1)
        return SUCCESS

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        return state.read(self.name, HardSpread).verdicts(nodes)

    def _filter_changes(
        self, state: CycleState, pod: PodInfo, mark: object
    ) -> tuple[object, ChangedVerdicts | Ids | None]:
        return state.read(self.name, HardSpread).changes_since(mark)

    def _filter_group(self, state: CycleState, pod: PodInfo) -> Hashable:
        return state.read(self.name, HardSpread).group

    # -- score ----------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status:
        try:
            constraints = self._constraints(pod.template, SCHEDULE_ANYWAY)
        except InvalidSelector as problem:
            return error(
                "calculating preScoreState: "
                f"obtaining pod's soft topology spread constraints: {problem}"
            )
        if not constraints:
            return self._skip(pod.template, SCHEDULE_ANYWAY)
        cached = self._caught_up(constraints, pod.template, nodes.table, SCHEDULE_ANYWAY)
        if cached is None:
            state.write(_SCORES, _UNRATED)
            return SUCCESS
        if cached.soft is None or not cached.soft.is_for(nodes):
            requires_all = self._requires_all_keys(pod.template)
            cached.soft = SoftSpread(cached.tracked, nodes, require_all_keys=requires_all)
        state.write(_SCORES, cached.soft)
        return SUCCESS

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Ints | ClassScores:
        return state.read(_SCORES, SpreadScores).score(nodes)

    def normalize(self, state: CycleState, pod: PodInfo, nodes: NodeRows, scores: Ints) -> Ints:
        return state.read(_SCORES, SpreadScores).normalize(scores)

    # -- wake-ups -------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # kube-scheduler has one registration for all changes of pods. Here the hint for a waiting
        # pod's own update is per pod, everything else is evaluated once per template.
        came_or_went = ClusterEvent(Resource.POD, Action.ADD | Action.DELETE)
        relabelled = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL)
        pending = ClusterEvent(
            Resource.UNSCHEDULABLE_POD, Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION
        )
        node = ClusterEvent(
            Resource.NODE,
            Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT,
        )
        return (
            ClusterEventWithHint(came_or_went, self._after_pod_change, per_pod=False),
            ClusterEventWithHint(relabelled, self._after_pod_change, per_pod=False),
            ClusterEventWithHint(pending, self._after_pending_pod_change),
            ClusterEventWithHint(node, self._after_node_change, per_pod=False),
        )

    def _after_pod_change(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> QueueingHint:
        """Another pod matters if it is assigned or nominated and starts or ceases to match."""
        template = pod.template
        if not all(_is_counted(one, template) for one in (old, new) if one is not None):
            return QueueingHint.SKIP
        constraints = self._constraints(template, DO_NOT_SCHEDULE)
        return _queue_if(any(_flips(constraint, old, new) for constraint in constraints))

    def _after_pending_pod_change(self, pod: PodInfo, old: Pod, new: Pod) -> QueueingHint:
        if new.metadata.uid != pod.uid:
            return self._after_pod_change(pod, old, new)
        constraints = self._constraints(pod.template, DO_NOT_SCHEDULE)
        tolerates_more = old.spec.tolerations != new.spec.tolerations and any(
            constraint.honors_taints for constraint in constraints
        )
        return _queue_if(
            tolerates_more or any(_flips(constraint, old, new) for constraint in constraints)
        )

    def _after_node_change(self, pod: PodInfo, old: Node | None, new: Node | None) -> QueueingHint:
        """kube-scheduler: checkTopologyKeyLabelsChanged."""
        constraints = self._constraints(pod.template, DO_NOT_SCHEDULE)
        matched = old is not None and has_all_keys(old.metadata.labels, constraints)
        matches = new is not None and has_all_keys(new.metadata.labels, constraints)
        if old is None or new is None or matched != matches:
            return _queue_if(matched or matches)
        if not matches:
            return QueueingHint.SKIP
        before, after = old.metadata.labels, new.metadata.labels
        moved = any(before[one.topology_key] != after[one.topology_key] for one in constraints)
        return _queue_if(moved or old.spec.taints != new.spec.taints)


_UNLABELLED, _UNRATED = Unlabelled(), SpreadScores()


class _Cached:
    """Constraints with their counters, and what was derived from them."""

    __slots__ = (
        "__weakref__",
        "constraints",
        "hard",
        "labels_generation",
        "ledger",
        "soft",
        "tracked",
    )

    def __init__(
        self,
        constraints: tuple[Constraint, ...],
        tracked: tuple[TrackedConstraint, ...],
        ledger: PodLedger,
    ) -> None:
        self.constraints = constraints
        self.ledger = ledger
        self.tracked = tracked
        self.labels_generation = -1
        """The node table's generation at which some node had each required label."""
        self.hard: HardConstraints | None = None
        self.soft: SoftSpread | None = None


def _queue_if(helps: bool) -> QueueingHint:
    return QueueingHint.QUEUE if helps else QueueingHint.SKIP


def _is_counted(other: Pod, template: PodTemplate) -> bool:
    """kube-scheduler: involvedInTopologySpreading."""
    has_node = other.spec.node_name or other.status.nominated_node_name
    return bool(has_node) and other.metadata.namespace == template.namespace


def _flips(constraint: Constraint, old: Pod | None, new: Pod | None) -> bool:
    """Whether a pod starts or ceases to match; added and deleted ones match on one side only."""
    matched = old is not None and constraint.selector.matches(old.metadata.labels)
    matches = new is not None and constraint.selector.matches(new.metadata.labels)
    return matched != matches
