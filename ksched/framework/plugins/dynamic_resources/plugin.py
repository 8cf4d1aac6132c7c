"""DynamicResources: allocates devices for the resource claims of pods."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ksched.api.devices import DeviceTaintRule, ResourceClaim
from ksched.api.objects import Pod
from ksched.configuration.plugin_args import DynamicResourcesArgs
from ksched.devices.extended_resource_classes import is_device_resource_name
from ksched.errors import ApiError
from ksched.framework import (
    SKIP,
    SKIP_TEMPLATE,
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    Diagnosis,
    FilterDependsOn,
    Handle,
    NodeRows,
    PodInfo,
    PodTemplate,
    PostFilterResult,
    QueueingHint,
    Resource,
    Scope,
    ScoreDependsOn,
    Snapshot,
    Status,
    Subjects,
    Verdicts,
    default_normalize,
    error,
    template_fact,
    unresolvable,
    unschedulable,
)
from ksched.framework.plugins import names
from ksched.framework.plugins.dynamic_resources.attempt import Attempt, SpecialClaim
from ksched.framework.plugins.dynamic_resources.claim_binder import ClaimBinder
from ksched.framework.plugins.dynamic_resources.claim_writer import ClaimWriter, NotWritten
from ksched.framework.plugins.dynamic_resources.device_finder import DeviceFinder
from ksched.framework.plugins.dynamic_resources.extended_resources import (
    class_backed,
    other_scalars,
    special_claim,
)
from ksched.framework.plugins.dynamic_resources.long_searches import LongSearches
from ksched.framework.plugins.dynamic_resources.pod_claims import (
    Unresolved,
    claim_keys,
    claims_of,
)
from ksched.framework.plugins.dynamic_resources.verdicts_by_view import NodeFailed, Question
from ksched.framework.time_slices import in_slices

_STATUSES = (
    unresolvable("cannot allocate all claims"),
    unresolvable("invalid resource pools were encountered"),
    unresolvable("resourceclaim not available on the node"),
    unresolvable("cannot schedule extended resource claim"),
    unresolvable("cannot fit resource"),
)
_NOTHING_TO_DEALLOCATE = PostFilterResult(unschedulable("no new claims to deallocate"))
_WRITING_SECONDS = 150.0
"""Time for writing claims, before and after the wait for binding conditions."""


class DynamicResources:
    """Allocates the devices that a pod's resource claims ask for.

    A claim asks for devices of classes: exactly so many, all, or the first of several alternatives
    that can be had; selectors in CEL, constraints between the devices, shared counters, consumable
    capacity and taints limit the choice. A node fits if all claims of the pod that have no devices
    yet can get some there, and if those of the others can be used there. When a node is chosen the
    devices are kept for the pod; before it is bound they are written into the claims, which are
    reserved for the pod, and if devices have binding conditions the pod waits for them
    (``bindingTimeout``). Extended resources with a device class behind them are satisfied by a
    claim that is made for the pod, on nodes that do not offer the resource themselves. Of several
    nodes those are preferred that offer more preferred alternatives.

    Reasons: ``cannot allocate all claims``, ``invalid resource pools were encountered``,
    ``resourceclaim not available on the node``, ``cannot schedule extended resource claim``,
    ``cannot fit resource``. For the pod as a whole: ``could not find ResourceClaim "ns/x"``,
    ``resourceclaim "x" is being deleted``, ``pod "ns/p": ResourceClaim not created yet``,
    ``ResourceClaim ns/x was not created for Pod ns/p (Pod is not owner)``, ``request r: device
    class c does not exist``, ``resource claim ns/x is in the process of being allocated``. A
    selector that cannot be evaluated, a request for all devices of pools that are being updated,
    and more than 32 devices of a claim are errors: they end the attempt.

    If a pod fits nowhere because of an allocated claim that no pod uses, the claim is deallocated
    (``deallocation of ResourceClaim completed``) and the pod is retried.

    A search for devices that takes long, and selectors that do, run in a thread. An attempt that
    waits for them for more than a moment is cut short and goes on after a pause.

    Arguments: ``bindingTimeout`` (10m), ``filterTimeout`` (10s): a search on one node that takes
    longer is an error. ``deviceTaintRules`` (false): DeviceTaintRules taint devices too, as with
    the feature gate DRADeviceTaintRules.
    """

    name: ClassVar[str] = names.DYNAMIC_RESOURCES
    score_depends_on: ClassVar = ScoreDependsOn(Scope.POD)

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        args = args or DynamicResourcesArgs()
        self.filter_depends_on = FilterDependsOn(Scope.CLUSTER, epoch=self._filter_epoch)
        self._handle = handle
        self._reads_taint_rules = bool(args.device_taint_rules)
        self._finder = DeviceFinder(handle, args)
        self._claims = self._finder.claims
        self._long_searches = LongSearches(args.filter_timeout_seconds)
        self._finder.classes.follow(lambda _: self._long_searches.load_compiler())
        self._writer = ClaimWriter(handle)
        self._binder = ClaimBinder(handle, self._claims, self._writer, args.binding_timeout_seconds)
        self.timeout_seconds = args.binding_timeout_seconds + _WRITING_SECONDS
        self.sweep = self._finder.sweep

    def start(self, handle: Handle) -> None:
        self._binder.tasks = handle.tasks

    def stop(self) -> None:
        self._long_searches.stop()

    def pre_enqueue(self, pod: PodInfo) -> Status:
        if not pod.template.spec.resource_claims:
            return SUCCESS
        try:
            claims_of(pod.pod, self._claims)
        except Unresolved as problem:
            return unresolvable(str(problem))
        return SUCCESS

    # -- filter ---------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> Status | Coroutine[Any, Any, Status]:
        template, extended = pod.template, self._finder.extended
        if not template.spec.resource_claims and not _asks_for_devices(template):
            return SKIP_TEMPLATE
        attempt = Attempt()
        state.write(self.name, attempt)
        try:
            claims = claims_of(pod.pod, self._claims)
        except Unresolved as problem:
            return unresolvable(str(problem))
        special = None
        backed = class_backed(template, extended)
        if backed:
            stored = self._claims.extended_resource_claim(pod.uid, pod.name)
            special = SpecialClaim(backed, other_scalars(template, backed), stored is not None)
            claims.append(stored or special_claim(pod, self._finder.new_uid()))
        if not claims:
            return SKIP
        user_claims = claims[:-1] if special else claims
        for claim in user_claims:
            if claim.status.allocation is None:
                problem_of = self._problem(claim)
                if problem_of is not None:
                    return problem_of
        attempt.add(claims, special)
        for terms in attempt.selectors.values():
            if terms.problems:
                return error("; ".join(terms.problems))
        now = self._handle.clock.now
        unanswered = in_slices(self._finder.preparing(attempt, template, snapshot), now)
        if unanswered == []:
            return SUCCESS
        return self._answer(unanswered)

    async def _answer(
        self, questions: list[Question] | Coroutine[Any, Any, list[Question]]
    ) -> Status:
        """Wait for searches that take long."""
        asked = questions if isinstance(questions, list) else await questions
        if asked:
            await self._long_searches.answer(asked)
        return SUCCESS

    def _problem(self, claim: ResourceClaim) -> Status | None:
        key = claim.metadata.key
        if self._claims.is_in_flight(claim.metadata.uid):
            text = f"resource claim {key} is in the process of being allocated"
            return unresolvable(text, is_momentary=True)
        for request in claim.spec.devices.requests:
            if request.exactly is not None:
                classes = [(request.name, request.exactly.device_class_name)]
            elif request.first_available:
                classes = [
                    (f"{request.name}/{one.name}", one.device_class_name)
                    for one in request.first_available
                ]
            else:
                text = f"request {request.name}: unknown request type"
                return unresolvable(f"resource claim {key}, {text}")
            for name, class_name in classes:
                if not class_name:
                    return error(f"request {name}: unsupported request type")
                if self._finder.classes.get(class_name) is None:
                    text = f"request {name}: device class {class_name} does not exist"
                    return unresolvable(text)
        return None

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts:
        attempt = state.read(self.name, Attempt)
        try:
            found = self._finder.judge(attempt, pod.template, nodes)
        except NodeFailed as problem:
            return Verdicts(np.ones(len(nodes), np.int16), (error(str(problem)),))
        return Verdicts(found.codes, _STATUSES)

    def _filter_epoch(self, state: CycleState, pod: PodInfo) -> object:
        attempt = state.read(self.name, Attempt)
        if len(attempt.unallocated) < len(attempt.claims):
            # Depends on the time as well, and PostFilter must learn which claims stand in the way.
            return object()
        return (
            self._handle.snapshot.table.node_log.generation,
            self._finder.devices.generation,
            self._finder.classes.generation,
            self._finder.extended.generation,
            [claim.spec for claim in attempt.user_claims],
            attempt.special is not None and attempt.special.is_stored,
        )

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult | Coroutine[Any, Any, PostFilterResult]:
        if self.name in state.not_asked:
            # Another plugin rejected the pod before this one prepared anything.
            return PostFilterResult(error("not found"))
        attempt = state.get(self.name, Attempt)
        if attempt is None or not attempt.claims:
            return _NOTHING_TO_DEALLOCATE
        return self._deallocate(attempt, pod)

    async def _deallocate(self, attempt: Attempt, pod: PodInfo) -> PostFilterResult:
        special = attempt.special
        try:
            for position in sorted(attempt.unavailable):
                claim = attempt.claims[position]
                users = claim.status.reserved_for
                is_special = special is not None and position == len(attempt.claims) - 1
                if not is_special and all(one.uid == pod.uid for one in users) and len(users) < 2:
                    await self._writer.deallocate(claim)
                    done = unschedulable("deallocation of ResourceClaim completed")
                    return PostFilterResult(done)
            if special is not None and special.is_stored:
                await self._writer.delete(attempt.claims[-1])
                return PostFilterResult(unschedulable("deletion of ResourceClaim completed"))
        except ApiError as problem:
            return PostFilterResult(error(problem.said))
        return PostFilterResult(unschedulable("still not schedulable"))

    # -- score ----------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status:
        """Not in kube-scheduler, where a pod without alternatives gets 0 everywhere."""
        if self.name not in state.skip_filter:
            attempt = state.read(self.name, Attempt)
            return SUCCESS if attempt.unallocated and attempt.has_alternatives else SKIP
        asks = _asks_for_devices(pod.template)
        return SKIP if pod.template.spec.resource_claims or asks else SKIP_TEMPLATE

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> NDArray[np.int64]:
        attempt = state.read(self.name, Attempt)
        return self._finder.judge(attempt, pod.template, nodes).scores

    def normalize(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows, scores: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        return default_normalize(scores)

    # -- reserve and bind -----------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        attempt = state.get(self.name, Attempt)
        if attempt is None or not attempt.unallocated:
            return SUCCESS
        table = self._handle.snapshot.table
        try:
            chosen = self._finder.choose(attempt, pod.template, table.infos[table.rows[node_name]])
        except NodeFailed as problem:
            return error(str(problem))
        if chosen is None:
            only_special = attempt.special is not None and len(attempt.unallocated) == 1
            return SUCCESS if only_special else error("claim allocation not found for node")
        attempt.allocations = chosen
        for position, allocation in chosen.items():
            self._claims.add_in_flight(attempt.claims[position].metadata.uid, allocation)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        attempt = state.get(self.name, Attempt)
        if attempt is not None:
            self._binder.undo(pod, attempt)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        attempt = state.get(self.name, Attempt)
        return SKIP if attempt is None or not attempt.claims else SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        attempt = state.get(self.name, Attempt)
        if attempt is None:
            return SUCCESS
        try:
            await self._binder.bind(pod, node_name, attempt)
        except NotWritten as problem:
            return error(str(problem))
        return SUCCESS

    # -- wake-ups -------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        changed = Action.ADD | Action.UPDATE
        node_changed = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
        generated = Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM
        events = (
            ClusterEventWithHint(
                ClusterEvent(Resource.NODE, node_changed), released=_no_gated_pods
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.RESOURCE_CLAIM, changed),
                self._is_schedulable_after_claim_change,
                subjects=Subjects(of_event=_changed_claim, of_pod=claim_keys),
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.UNSCHEDULABLE_POD, generated),
                self._is_schedulable_after_pod_change,
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.DEVICE_CLASS, changed), released=_no_gated_pods
            ),
            ClusterEventWithHint(
                ClusterEvent(Resource.RESOURCE_SLICE, changed), released=_no_gated_pods
            ),
        )
        if not self._reads_taint_rules:
            return events
        rule_changed = ClusterEvent(Resource.DEVICE_TAINT_RULE, Action.UPDATE | Action.DELETE)
        return (
            *events,
            ClusterEventWithHint(
                rule_changed, _has_other_spec, per_pod=False, released=_no_gated_pods
            ),
        )

    def _is_schedulable_after_claim_change(
        self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim
    ) -> QueueingHint:
        try:
            claims = claims_of(pod.pod, self._claims)
        except Unresolved:
            return QueueingHint.SKIP
        if old is not None and old.status.allocation and not new.status.allocation:
            return QueueingHint.QUEUE
        if all(one.metadata.uid != new.metadata.uid for one in claims):
            return QueueingHint.SKIP
        if old is not None and old.status == new.status:
            return QueueingHint.SKIP
        return QueueingHint.QUEUE

    def _is_schedulable_after_pod_change(self, pod: PodInfo, old: Pod, new: Pod) -> QueueingHint:
        if new.metadata.uid != pod.uid:
            return QueueingHint.SKIP
        try:
            claims_of(new, self._claims)
        except Unresolved:
            return QueueingHint.SKIP
        return QueueingHint.QUEUE


def _no_gated_pods() -> Sequence[str]:
    """PreEnqueue reads nothing but claims: other events let no pod pass."""
    return ()


def _has_other_spec(
    pod: PodInfo, old: DeviceTaintRule, new: DeviceTaintRule | None
) -> QueueingHint:
    """The status of a rule, which counts evicted pods, changes often."""
    is_same = new is not None and old.spec == new.spec
    return QueueingHint.SKIP if is_same else QueueingHint.QUEUE


def _changed_claim(old: ResourceClaim | None, new: ResourceClaim) -> list[str] | None:
    """The claim of an event; devices that are free again may be of use to any pod."""
    if old is not None and old.status.allocation and not new.status.allocation:
        return None
    return [new.metadata.key]


@template_fact
def _asks_for_devices(template: PodTemplate) -> bool:
    """Whether devices might stand behind a resource that a pod requests, now or later."""
    return any(
        amount > 0 and is_device_resource_name(resource)
        for resource, amount in template.requests.items()
    )
