"""The filter of DynamicResources: the nodes on which a pod's claims can be allocated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.api.devices import AllocationResult, DeviceClass, ResourceClaim, ResourceClaimSpec
from ksched.configuration.plugin_args import DynamicResourcesArgs
from ksched.devices.effort import Effort, SearchIsLong
from ksched.devices.extended_resource_classes import ExtendedResourceClasses
from ksched.devices.node_views import NodeViews, PublishedDevices
from ksched.devices.requests import AllocationFailed, ClaimPlan
from ksched.devices.results import allocation_result, subrequest_score
from ksched.devices.selector_cache import SelectorCache
from ksched.errors import TookTooLong
from ksched.framework import Handle, NodeInfo, NodeRows, PodTemplate, Snapshot
from ksched.framework.freshness import RecentlyUsed
from ksched.framework.plugins.dynamic_resources.attempt import NOT_SEARCHED, Attempt, Wanted
from ksched.framework.plugins.dynamic_resources.binding_conditions import (
    BindingFailed,
    is_ready,
    is_timed_out,
)
from ksched.framework.plugins.dynamic_resources.extended_resources import (
    NOTHING,
    ExtendedRequests,
    extended_requests,
)
from ksched.framework.plugins.dynamic_resources.verdicts_by_view import (
    MOMENT_SECONDS,
    SEARCH_IS_LONG,
    TIMED_OUT,
    UNSURE,
    KnownVerdicts,
    NodeFailed,
    Question,
    VerdictsByView,
    problem,
)
from ksched.framework.plugins.node_matching import matches_terms
from ksched.steps import Steps

Bools = NDArray[np.bool_]
Codes = NDArray[np.int16]

PASSES, CANNOT_ALLOCATE, INVALID_POOLS, NOT_AVAILABLE, STALE_CLAIM, CANNOT_FIT = range(6)

PLANS_CACHED = 1024
PASSES_OVER_NODES = 3
"""Limit of repetitions while devices of other pods keep changing the nodes."""
MOST_QUESTIONS = 1024
"""Limit of the long searches of one attempt."""


class Found(NamedTuple):
    """The verdicts of nodes: a code each, and the score of the subrequests chosen there."""

    codes: Codes
    scores: NDArray[np.int64]


class DeviceFinder:
    """Finds devices for the pods of one profile."""

    def __init__(self, handle: Handle, args: DynamicResourcesArgs) -> None:
        published = (
            PublishedDevices.with_taint_rules if args.device_taint_rules else PublishedDevices
        )
        self.devices = handle.listers.view(published)
        self.claims = self.devices.claims
        self.classes = handle.listers.require(DeviceClass)
        self.extended = handle.listers.view(ExtendedResourceClasses)
        self._handle = handle
        self._binding_timeout_seconds = args.binding_timeout_seconds
        self._new_uid: Callable[[], str] = lambda: _random_uid(handle.rng.getrandbits)
        self._views: NodeViews | None = None
        # Whether a node has enough of a resource depends on the classes, which no column holds.
        self.extended.on_change(self._forget_changes)
        self._known = KnownVerdicts()
        self._selectors = SelectorCache()
        self._plans: RecentlyUsed[ResourceClaimSpec, ClaimPlan] = RecentlyUsed()
        self._plans_of = -1
        self._extended: RecentlyUsed[tuple[PodTemplate, tuple[str, ...], int], ExtendedRequests] = (
            RecentlyUsed()
        )

    def _forget_changes(self) -> None:
        self._handle.snapshot.table.forget_changes()

    def new_uid(self) -> str:
        return self._new_uid()

    def sweep(self) -> None:
        self._known.sweep()
        self._selectors.sweep()
        self._plans.sweep()
        self._extended.sweep()

    def preparing(
        self, attempt: Attempt, template: PodTemplate, snapshot: Snapshot
    ) -> Steps[list[Question]]:
        """Apply changes, and search for devices wherever the result is not cached.

        Afterwards ``judge`` only looks up. Returns the questions that take too long for that.
        """
        if self._plans_of != self.classes.generation:
            self._plans_of = self.classes.generation
            self._plans.clear()
        if self._views is None:
            self._views = NodeViews(self.devices, snapshot.table)
        yield from self._views.catching_up()
        questions: list[Question] = []
        nodes = NodeRows(snapshot.table, None)
        found = Found(np.zeros(len(nodes), np.int16), np.zeros(len(nodes), np.int64))
        for requests, wanted in self._parts(attempt, template, nodes, found):
            verdicts, keys = self._verdicts(attempt, requests)
            ids, name_of = self._views.ids(nodes.index)[wanted], self._names(nodes, wanted)
            verdicts.begin()
            asked, is_complete = yield from _learning(verdicts, ids, name_of, keys)
            attempt.found_all(verdicts, self._views.generation if is_complete else NOT_SEARCHED)
            questions += asked
            if len(questions) >= MOST_QUESTIONS:
                break
        return questions

    def plan(self, spec: ResourceClaimSpec) -> ClaimPlan:
        known = self._plans.get(spec)
        if known is None:
            known = ClaimPlan(spec, self.classes.get, self._selectors)
            self._plans.put(spec, known, PLANS_CACHED)
        return known

    # -- all nodes ------------------------------------------------------------------------------

    def judge(self, attempt: Attempt, template: PodTemplate, nodes: NodeRows) -> Found:
        """Filter some nodes; raises ``NodeFailed`` or ``TookTooLong``.

        kube-scheduler: Filter.
        """
        count = len(nodes)
        found = Found(np.zeros(count, np.int16), np.zeros(count, np.int64))
        try:
            for requests, wanted in self._parts(attempt, template, nodes, found):
                self._allocate(attempt, requests, nodes, wanted, found)
        except SearchIsLong:
            # Something changed since the searches of PreFilter, or they had no more time.
            raise TookTooLong(MOMENT_SECONDS, SEARCH_IS_LONG) from None
        unsure = found.codes == UNSURE
        if unsure.any():
            if not (found.codes == PASSES).any():
                raise TookTooLong(MOMENT_SECONDS, SEARCH_IS_LONG)
            found.codes[unsure] = CANNOT_ALLOCATE
        if attempt.special is None or not attempt.special.is_stored:
            self._check_allocated(attempt, nodes, found)
        return found

    def _parts(
        self, attempt: Attempt, template: PodTemplate, nodes: NodeRows, found: Found
    ) -> Iterator[tuple[ExtendedRequests | None, Bools]]:
        """Nodes on which the pod wants the same devices; writes the codes of those without."""
        special = attempt.special
        if special is not None and special.is_stored:
            found.codes[:] = STALE_CLAIM
            return
        if not attempt.unallocated:
            return
        if special is None:
            yield None, np.ones(len(nodes), np.bool_)
            return
        for resource in special.others:
            found.codes[nodes.allocatable(resource) == 0] = CANNOT_FIT
        is_missing = {one: nodes.allocatable(one) == 0 for one in special.backed}
        todo = found.codes == 0
        while todo.any():
            first = int(todo.argmax())
            by_devices = tuple(one for one, missing in is_missing.items() if missing[first])
            alike = todo.copy()
            for one, missing in is_missing.items():
                alike &= missing == (one in by_devices)
            todo &= ~alike
            if by_devices or attempt.user_claims:
                yield self._requests(template, by_devices), alike

    def _requests(self, template: PodTemplate, by_devices: tuple[str, ...]) -> ExtendedRequests:
        if not by_devices:
            return NOTHING
        key = (template, by_devices, self.extended.generation)
        known = self._extended.get(key)
        if known is None:
            known = extended_requests(template.spec, by_devices, self.extended)
            self._extended.put(key, known, PLANS_CACHED)
        return known

    def _allocate(
        self,
        attempt: Attempt,
        requests: ExtendedRequests | None,
        nodes: NodeRows,
        wanted: Bools,
        found: Found,
    ) -> None:
        """Search for devices on the wanted nodes."""
        verdicts, keys = self._verdicts(attempt, requests)
        assert self._views is not None
        if nodes.table is self._views.table:
            ids = self._views.ids(nodes.index)[wanted]
            self._views.catch_up_use()
            # The verdicts are others if the device classes have changed meanwhile.
            if attempt.searched.get(verdicts) == self._views.generation:
                codes, scores = verdicts.known(ids)
            else:
                codes, scores = verdicts.judge(ids, self._names(nodes, wanted), keys)
        else:
            effort = Effort(MOMENT_SECONDS)
            answers = []
            for info, is_wanted in zip(nodes.infos, wanted, strict=True):
                if is_wanted:
                    view = self._views.view(info)
                    answers.append(verdicts.answer(view, info.name, keys, effort))
                    if answers[-1].code >= TIMED_OUT:
                        raise NodeFailed(problem(answers[-1], info.name))
            codes = np.array([one.code for one in answers], np.int16)
            scores = np.array([one.score for one in answers], np.int64)
        found.codes[wanted] = codes
        found.scores[wanted] = scores + self._allocated_score(attempt)

    def _names(self, nodes: NodeRows, wanted: Bools) -> Callable[[int], str]:
        def name_of(place: int) -> str:
            at = int(np.flatnonzero(wanted)[place])
            row = at if nodes.rows is None else int(nodes.rows[at])
            return nodes.table.infos[row].name

        return name_of

    def _verdicts(
        self, attempt: Attempt, requests: ExtendedRequests | None
    ) -> tuple[VerdictsByView, tuple[str, ...]]:
        wanted = attempt.wanted
        if wanted is not None and wanted.requests is requests:
            return wanted.verdicts, wanted.keys
        assert self._views is not None
        specs, keys = [], []
        for position in attempt.unallocated:
            claim = attempt.claims[position]
            is_special = attempt.special is not None and position == len(attempt.claims) - 1
            specs.append(requests.spec if is_special and requests is not None else claim.spec)
            keys.append(claim.metadata.key)
        plans = tuple(self.plan(spec) for spec in specs)
        wanted = Wanted(requests, self._known.of(plans, self.devices, self._views), tuple(keys))
        attempt.wanted = wanted
        return wanted.verdicts, wanted.keys

    def _allocated_score(self, attempt: Attempt) -> int:
        score = 0
        for claim in attempt.claims:
            allocation = claim.status.allocation
            if allocation is not None:
                requests = frozenset(one.request for one in allocation.devices.results)
                score += subrequest_score(self.plan(claim.spec), requests)
        return score

    def _check_allocated(self, attempt: Attempt, nodes: NodeRows, found: Found) -> None:
        """Reject nodes that cannot use allocated devices; records the claims."""
        for position, claim in enumerate(attempt.claims):
            if claim.status.allocation is None:
                continue
            if self._is_broken(claim):
                rejected = np.ones(len(nodes), np.bool_)
            elif position in attempt.selectors:
                rejected = ~matches_terms(attempt.selectors[position], nodes)
            else:
                continue
            rejected &= (found.codes == PASSES) | (found.codes == NOT_AVAILABLE)
            if rejected.any():
                found.codes[rejected] = NOT_AVAILABLE
                attempt.unavailable.add(position)

    def _is_broken(self, claim: ResourceClaim) -> bool:
        """Whether the binding conditions of a claim's devices failed or timed out."""
        try:
            if is_ready(claim):
                return False
        except BindingFailed:
            return True
        return is_timed_out(claim, self._binding_timeout_seconds, self._handle.clock.wall())

    # -- the selected node ----------------------------------------------------------------------

    def choose(
        self, attempt: Attempt, template: PodTemplate, node: NodeInfo
    ) -> dict[int, AllocationResult] | None:
        """The allocations of the claims without devices on a node, by position.

        ``None`` if there are none; raises ``NodeFailed`` or ``TookTooLong``.
        """
        requests = None
        special = attempt.special
        if special is not None:
            offered = {one: node.allocatable_of(one) for one in special.backed}
            by_devices = tuple(one for one, amount in offered.items() if amount == 0)
            if not by_devices and not attempt.user_claims:
                return None
            requests = special.chosen = self._requests(template, by_devices)
        verdicts, keys = self._verdicts(attempt, requests)
        assert self._views is not None
        try:
            chosen = verdicts.choose(self._views.view(node), node.name, keys)
        except SearchIsLong:
            raise TookTooLong(MOMENT_SECONDS, SEARCH_IS_LONG) from None
        if chosen is None:
            return None
        allocations = {}
        for position, plan, devices in zip(
            attempt.unallocated, verdicts.plans, chosen, strict=True
        ):
            name = attempt.claims[position].metadata.name
            try:
                allocations[position] = allocation_result(
                    name, plan, devices, node.name, self.new_uid
                )
            except AllocationFailed as problem:
                raise NodeFailed(str(problem)) from problem
        return allocations


def _learning(
    verdicts: VerdictsByView,
    ids: NDArray[np.int32],
    name_of: Callable[[int], str],
    keys: tuple[str, ...],
) -> Steps[tuple[Collection[Question], bool]]:
    """Search on the nodes without a cached result; long searches become questions.

    Devices may be allocated during a pause, so what is unknown is looked up again in the end.
    Returns whether nothing is unknown, besides the questions.
    """
    asked: dict[Hashable, Question] = {}
    for _ in range(PASSES_OVER_NODES):
        unknown = verdicts.unknown(ids)
        seconds = MOMENT_SECONDS
        for number, place in unknown:
            name = name_of(place)
            try:
                is_open = verdicts.learn(number, name, keys, Effort(seconds)).code == UNSURE
            except SearchIsLong:
                is_open = True
                # The others will hardly be shorter.
                seconds = 0.0
            if is_open:
                yield
                verdicts.ask(number, name, keys, asked)
                if len(asked) >= MOST_QUESTIONS:
                    return asked.values(), False
            yield
        if asked or not unknown:
            break
    return asked.values(), not unknown


def _random_uid(getrandbits: Callable[[int], int]) -> str:
    text = f"{getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62) | 4 << 76 | 2 << 62:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
