"""Where devices can be found for some claims: answered once for nodes that look alike.

The filter is asked in every cycle and only about nodes that no other plugin rejected, because an
error of one node ends the attempt; so the runtime cannot keep its answers. They are kept here, by
what a node sees of the devices and what is in use of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.devices.allocator import Chosen, InvalidPools, SearchTimedOut, WantedClaim, allocate
from ksched.devices.node_views import NodeViews, PublishedDevices
from ksched.devices.pools import NodeView
from ksched.devices.requests import AllocationFailed, ClaimPlan
from ksched.devices.results import node_selector, subrequest_score
from ksched.framework.freshness import RecentlyUsed

PASSES, CANNOT_ALLOCATE, INVALID_POOLS = 0, 1, 2

ANSWERS_CACHED = 65536
"""By layout and use of the devices."""


class _Answer(NamedTuple):
    code: int
    score: int


_CANNOT_ALLOCATE = _Answer(CANNOT_ALLOCATE, 0)
_INVALID_POOLS = _Answer(INVALID_POOLS, 0)


class NodeFailed(Exception):
    """Devices cannot be looked for on a node; ends the attempt."""


class VerdictsByView:
    """What is known about claims with the same specs, for all nodes of a table."""

    def __init__(
        self, plans: Sequence[ClaimPlan], devices: PublishedDevices, views: NodeViews
    ) -> None:
        self.plans = plans
        self._devices = devices
        self._views = views
        self._epoch = -1
        self._changes = views.stale.cursor()
        self._codes = np.zeros(0, np.int16)
        self._scores = np.zeros(0, np.int64)
        self._is_stale = np.ones(0, np.bool_)
        self._answers: dict[Hashable, _Answer] = {}

    def judge(
        self, ids: NDArray[np.int32], name_of: Callable[[int], str], keys: Sequence[str]
    ) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """Codes and scores of nodes; ``ids`` are their views, ``keys`` those of the claims.

        ``name_of`` tells the name of the node at a place among them.

        Raises ``NodeFailed``.
        """
        self._catch_up()
        stale = self._is_stale[ids]
        if stale.any():
            found, first = np.unique(ids[stale], return_index=True)
            places = np.flatnonzero(stale)[first]
            for number, place in zip(found.tolist(), places.tolist(), strict=True):
                answer = self._answer(number, name_of(place), keys)
                self._codes[number], self._scores[number] = answer
                self._is_stale[number] = False
        return self._codes[ids], self._scores[ids]

    def _catch_up(self) -> None:
        count, changes = len(self._views.views), self._changes.changes()
        if self._epoch != self._views.epoch or changes is None:
            self._epoch = self._views.epoch
            self._is_stale = np.ones(count, np.bool_)
            self._codes = np.zeros(count, np.int16)
            self._scores = np.zeros(count, np.int64)
        else:
            more = count - len(self._codes)
            if more:
                self._is_stale = np.concatenate((self._is_stale, np.ones(more, np.bool_)))
                self._codes = np.concatenate((self._codes, np.zeros(more, np.int16)))
                self._scores = np.concatenate((self._scores, np.zeros(more, np.int64)))
            if changes:
                self._is_stale[changes] = True
        self._changes.advance()

    def _answer(self, number: int, name: str, keys: Sequence[str]) -> _Answer:
        key = self._views.key(number)
        answer = self._answers.get(key)
        if answer is None:
            answer = self.answer(self._views.views[number], name, keys)
            if len(self._answers) >= ANSWERS_CACHED:
                self._answers.clear()
            self._answers[key] = answer
        return answer

    def answer(self, view: NodeView, name: str, keys: Sequence[str]) -> _Answer:
        """Look for devices; raises ``NodeFailed``."""
        try:
            chosen = self.choose(view, name, keys)
        except InvalidPools:
            return _INVALID_POOLS
        if chosen is None:
            return _CANNOT_ALLOCATE
        score = 0
        for key, plan, devices in zip(keys, self.plans, chosen, strict=True):
            try:
                node_selector(key.rpartition("/")[2], devices, name)
            except AllocationFailed as problem:
                raise NodeFailed(str(problem)) from problem
            requests = frozenset(one.request.full_name for one in devices)
            score += subrequest_score(plan, requests)
        return _Answer(PASSES, score)

    def choose(self, view: NodeView, name: str, keys: Sequence[str]) -> Chosen | None:
        """Choose devices for the claims; raises ``NodeFailed`` or ``InvalidPools``."""
        claims = [WantedClaim(*pair) for pair in zip(keys, self.plans, strict=True)]
        try:
            return allocate(view, self._devices.claims.devices, claims)
        except AllocationFailed as problem:
            raise NodeFailed(str(problem)) from problem
        except SearchTimedOut:
            raise NodeFailed(f"node {name}: timed out trying to allocate devices") from None


class KnownVerdicts:
    """Verdicts by the specs of claims; those unused for longest make room."""

    def __init__(self) -> None:
        self._known: RecentlyUsed[Hashable, VerdictsByView] = RecentlyUsed()

    def of(
        self, plans: tuple[ClaimPlan, ...], devices: PublishedDevices, views: NodeViews
    ) -> VerdictsByView:
        known = self._known.get(plans)
        if known is None:
            known = VerdictsByView(plans, devices, views)
            self._known.put(plans, known, 256)
        return known

    def sweep(self) -> None:
        self._known.sweep()
