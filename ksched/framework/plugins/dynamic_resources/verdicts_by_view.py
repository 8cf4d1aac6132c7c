"""Cached results of searches for devices, shared by nodes with equal views.

The filter runs in every cycle and only on nodes that no other plugin rejected, because an error on
one node ends the attempt; so the runtime cannot cache its verdicts. They are cached here, by the
key of a node's view, which says what is in use: a placed pod costs other claims nothing unless its
node has a key that no other had.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ksched.clock import stopwatch
from ksched.devices.allocated import NOTHING_IN_USE, PoolUse
from ksched.devices.allocator import (
    Chosen,
    ChosenDevice,
    InvalidPools,
    PoolsInUse,
    WantedClaim,
    allocate,
)
from ksched.devices.effort import Effort, SearchIsLong, SearchTimedOut
from ksched.devices.node_views import NodeViews, PublishedDevices
from ksched.devices.pools import NodeView
from ksched.devices.requests import AllocationFailed, ClaimPlan
from ksched.devices.results import node_selector, subrequest_score
from ksched.devices.slices import PoolKey
from ksched.framework.freshness import RecentlyUsed

UNSURE, PASSES, CANNOT_ALLOCATE, INVALID_POOLS, TIMED_OUT, FAILED = range(-1, 5)
"""``UNSURE``: rejected as its devices were recently, and the search takes too long to repeat."""

T = TypeVar("T", bound=np.generic)

PoolKeys = tuple[PoolKey, ...]

ANSWERS_CACHED = 65536
"""By layout and use of the devices."""
RECENT_SECONDS = 30.0
"""How long the result of a search in the thread is used although devices have changed since."""

MOMENT_SECONDS = 0.005
"""How long searches may block the event loop."""
SEARCH_IS_LONG = "the search for devices takes so long"


class Answer(NamedTuple):
    """The result of the search on nodes with equal views."""

    code: int
    score: int = 0
    chosen: Chosen | None = None
    problem: str = ""
    """Why there is no answer (``FAILED``); names the claims of one pod."""


class Recent(NamedTuple):
    """The result of a search in the thread for certain pools."""

    answer: Answer
    keys: tuple[str, ...]
    """Of the claims."""
    view: NodeView
    """As it was."""
    until: float


class NodeFailed(Exception):
    """The search on a node failed; ends the attempt."""


class VerdictsByView:
    """The cached results for claims with the same specs, for all nodes of a table."""

    def __init__(
        self, plans: Sequence[ClaimPlan], devices: PublishedDevices, views: NodeViews
    ) -> None:
        self.plans = plans
        self._devices = devices
        self._views = views
        self._epoch = -1
        # By number of a key.
        self._codes = np.zeros(0, np.int16)
        self._scores = np.zeros(0, np.int64)
        self._is_known = np.zeros(0, np.bool_)
        self._answers: RecentlyUsed[Hashable, Answer] = RecentlyUsed()
        self._recent: dict[PoolKeys, Recent] = {}
        self._provisional: dict[Hashable, Answer] = {}
        """From recent results, for the current attempt only."""

    def sweep(self) -> None:
        """Drop answers about devices as they were; a driver may publish new ones every moment."""
        now = stopwatch()
        self._recent = {key: one for key, one in self._recent.items() if one.until > now}
        before = len(self._answers)
        self._answers.sweep()
        if len(self._answers) < before:
            self._is_known[:] = False

    def judge(
        self, ids: NDArray[np.int32], name_of: Callable[[int], str], keys: tuple[str, ...]
    ) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """Codes and scores of nodes; ``ids`` are their views, ``keys`` those of the claims.

        ``name_of`` returns the name of the node at a place among them.

        Raises ``NodeFailed``, or ``SearchIsLong`` if ``learn`` has not found out all of it.
        """
        effort: Effort | None = None
        for number, place in self.unknown(ids):
            name = name_of(place)
            effort = effort or Effort(MOMENT_SECONDS)
            answer = self.learn(number, name, keys, effort)
            if answer.code >= TIMED_OUT:
                raise NodeFailed(problem(answer, name))
        return self.known(ids)

    def known(self, ids: NDArray[np.int32]) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """The same where nothing is ``unknown``."""
        keys_of_nodes = self._views.key_numbers(ids)
        return self._codes[keys_of_nodes], self._scores[keys_of_nodes]

    def unknown(self, ids: NDArray[np.int32]) -> list[tuple[int, int]]:
        """Views without an answer, one of those with equal keys, and the first place of each."""
        self._views.catch_up_use()
        self._catch_up()
        keys_of_nodes = self._views.key_numbers(ids)
        is_known = self._is_known[keys_of_nodes]
        if is_known.all():
            return []
        places = np.flatnonzero(~is_known)
        _, first = np.unique(keys_of_nodes[places], return_index=True)
        return [(int(ids[place]), place) for place in np.sort(places[first]).tolist()]

    def _catch_up(self) -> None:
        count = len(self._views.keys)
        if self._epoch != self._views.epoch:
            self._epoch = self._views.epoch
            self._is_known = np.zeros(count, np.bool_)
        if count > len(self._codes):
            room = count + count // 4 + 16
            self._codes, self._scores = _longer(self._codes, room), _longer(self._scores, room)
        if count > len(self._is_known):
            self._is_known = _longer(self._is_known, len(self._codes))

    def learn(self, number: int, name: str, keys: tuple[str, ...], effort: Effort) -> Answer:
        """Find out about a view that ``unknown`` returned, seen by the named node."""
        at = self._views.key_number(number)
        self._catch_up()
        view, key = self._views.views[number], self._views.keys[at]
        answer = self._known(key, keys) or self._find_out(view, name, keys, key, effort)
        if answer.code < TIMED_OUT:
            self._codes[at], self._scores[at] = answer.code, answer.score
            self._is_known[at] = key not in self._provisional
        return answer

    def answer(self, view: NodeView, name: str, keys: tuple[str, ...], effort: Effort) -> Answer:
        """Search on any node."""
        key = self._views.key_of(view)
        return self._known(key, keys) or self._find_out(view, name, keys, key, effort)

    def _known(self, key: Hashable, keys: tuple[str, ...]) -> Answer | None:
        known = self._answers.get(key) or self._answers.get((key, keys))
        return known or self._provisional.get(key)

    def _find_out(
        self, view: NodeView, name: str, keys: tuple[str, ...], key: Hashable, effort: Effort
    ) -> Answer:
        try:
            return self._search(view, name, keys, key, effort)
        except SearchIsLong:
            answer = self._as_recently(view, name, keys)
            if answer is None:
                raise
            self._provisional[key] = answer
            return answer

    def _as_recently(self, view: NodeView, name: str, keys: tuple[str, ...]) -> Answer | None:
        """The result for the same pools as they were, if it is still possible.

        A driver that publishes faster than devices are found would else keep a pod waiting for
        ever. kube-scheduler decides by the devices as they were when the attempt began, too.
        """
        recent = self._recent.get(_pool_keys(view))
        if recent is None or recent.until < stopwatch():
            return None
        if recent.answer.code == TIMED_OUT or (
            recent.answer.code == FAILED and recent.keys == keys
        ):
            return recent.answer
        if recent.answer.code != PASSES:
            return Answer(UNSURE)
        position_of = {
            (pool.key, device.name): position
            for position, (device, pool, _) in enumerate(view.candidates)
        }
        devices = [one for each in recent.answer.chosen or () for one in each]
        if any(_identity(one) not in position_of for one in devices):
            return None
        among = {one.position for one in devices}
        in_use, effort = self._devices.claims.devices.of, Effort(MOMENT_SECONDS)
        try:
            found = search(recent.view, in_use, self.plans, name, keys, effort, among)
        except SearchIsLong:
            return None
        if found.chosen is None:
            return None
        moved = [
            [one._replace(position=position_of[_identity(one)]) for one in each]
            for each in found.chosen
        ]
        return found._replace(chosen=moved)

    def begin(self) -> None:
        """Call at the beginning of an attempt."""
        self._provisional.clear()

    def _search(
        self, view: NodeView, name: str, keys: tuple[str, ...], key: Hashable, effort: Effort
    ) -> Answer:
        found = search(view, self._devices.claims.devices.of, self.plans, name, keys, effort)
        self.keep(key, keys, found)
        return found

    def keep(self, key: Hashable, keys: tuple[str, ...], answer: Answer) -> None:
        """Cache the result for nodes of a key."""
        by = (key, keys) if answer.code == FAILED else key
        self._answers.put(by, answer, ANSWERS_CACHED)

    def keep_recent(self, question: Question, answer: Answer) -> None:
        """Remember the result of a search in the thread even if devices change."""
        recent = Recent(answer, question.keys, question.view, stopwatch() + RECENT_SECONDS)
        for pools in question.pools:
            self._recent[pools] = recent

    def ask(
        self, number: int, name: str, keys: tuple[str, ...], asked: dict[Hashable, Question]
    ) -> None:
        """Add what to find out in a thread about a view that ``learn`` has no time for."""
        view = self._views.views[number]
        key = self._views.key_of(view)
        if key not in asked:
            in_use = self._devices.claims.devices.frozen(pool.key for pool in view.pools)
            others = (one for one in self._views.alike(number) if one is not view)
            pools = [_pool_keys(one) for one in (view, *others)]
            asked[key] = Question(self, view, name, keys, key, in_use, pools)

    def choose(self, view: NodeView, name: str, keys: tuple[str, ...]) -> Chosen | None:
        """The devices of the claims on a node; raises ``NodeFailed`` or ``SearchIsLong``."""
        answer = self.answer(view, name, keys, Effort(MOMENT_SECONDS))
        if answer.code >= TIMED_OUT:
            raise NodeFailed(problem(answer, name))
        if answer.chosen is None:
            return None
        return [
            [one._replace(device=view.candidates[one.position][0]) for one in devices]
            for devices in answer.chosen
        ]


def _longer(values: NDArray[T], count: int) -> NDArray[T]:
    return np.concatenate((values, np.zeros(count - len(values), values.dtype)))


def _identity(one: ChosenDevice) -> tuple[PoolKey, str]:
    return one.device.published_by.pool, one.device.name


def _pool_keys(view: NodeView) -> PoolKeys:
    return tuple(pool.key for pool in view.pools)


def problem(answer: Answer, node_name: str) -> str:
    if answer.code == TIMED_OUT:
        return f"node {node_name}: timed out trying to allocate devices"
    return answer.problem


def search(
    view: NodeView,
    in_use: PoolsInUse,
    plans: Sequence[ClaimPlan],
    node_name: str,
    keys: Sequence[str],
    effort: Effort,
    among: Iterable[int] | None = None,
) -> Answer:
    """Search for devices; raises ``SearchIsLong``. Reads nothing that changes but ``in_use``."""
    claims = [WantedClaim(*pair) for pair in zip(keys, plans, strict=True)]
    try:
        chosen = allocate(view, in_use, claims, effort, among)
        if chosen is None:
            return Answer(CANNOT_ALLOCATE)
        score = 0
        for key, plan, devices in zip(keys, plans, chosen, strict=True):
            node_selector(key.rpartition("/")[2], devices, node_name)
            requests = frozenset(one.request.full_name for one in devices)
            score += subrequest_score(plan, requests)
    except InvalidPools:
        return Answer(INVALID_POOLS)
    except SearchTimedOut:
        return Answer(TIMED_OUT)
    except AllocationFailed as failed:
        return Answer(FAILED, problem=str(failed))
    return Answer(PASSES, score, chosen)


class Question(NamedTuple):
    """A search to be made in a thread, with all that it reads."""

    verdicts: VerdictsByView
    view: NodeView
    node_name: str
    keys: tuple[str, ...]
    key: Hashable
    in_use: Mapping[PoolKey, PoolUse]
    pools: Sequence[PoolKeys]
    """Of this view, and of others for which the answer is the same."""

    def search(self, effort: Effort) -> Answer:
        def in_use(key: PoolKey) -> PoolUse:
            return self.in_use.get(key, NOTHING_IN_USE)

        return search(self.view, in_use, self.verdicts.plans, self.node_name, self.keys, effort)

    def keep(self, answer: Answer) -> None:
        self.verdicts.keep(self.key, self.keys, answer)
        self.verdicts.keep_recent(self, answer)


class KnownVerdicts:
    """Verdicts by the specs of claims; the least recently used are evicted."""

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
        for _, verdicts in self._known.items():
            verdicts.sweep()
