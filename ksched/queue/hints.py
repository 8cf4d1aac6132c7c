"""Whether an event makes a waiting pod worth another attempt.

Plugins register events, each with an optional queueing hint. A pod is requeued when a plugin that
rejected it registered the event and the hint does not return SKIP
(backend/queue/scheduling_queue.go: isPodWorthRequeuing, v1.36). A hint that raises counts as QUEUE:
a useless attempt is cheaper than a pod that is never retried.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from inspect import iscoroutinefunction
from typing import Any

from ksched.cache.pod_info import PodInfo
from ksched.clock import stopwatch
from ksched.configuration.extension_points import EXTENSION_POINTS
from ksched.errors import ConfigError
from ksched.framework.cluster_events import (
    ASSUMED_POD_FORGOTTEN,
    CONFIG_RELOAD,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    HintFunction,
    QueueingHint,
    Resource,
)
from ksched.framework.queued_pod import QueuedPodInfo, SharedWait
from ksched.framework.untrusted_values import is_interrupt, safe_error_text, safe_repr
from ksched.metrics import Histogram
from ksched.queue.unschedulable import SubjectKey, WaitingGroup, Waker
from ksched.queue.work import QueueWork

log = logging.getLogger(__name__)

TIMED_EVERY = 100
"""One call of a hint in so many is measured."""

_SKIPS, _QUEUES = QueueingHint.SKIP.value, QueueingHint.QUEUE.value

Registration = tuple[str, ClusterEventWithHint]
"""A plugin's name and one of its registered events (kube-scheduler: QueueingHintFunction)."""

_REJECTING_METHODS = [
    method for point in EXTENSION_POINTS if point.rejects_pods for method in point.methods
]

_RESOURCES_WITHOUT_HINTS = (
    Resource.POD,
    Resource.NODE,
    Resource.PERSISTENT_VOLUME,
    Resource.PERSISTENT_VOLUME_CLAIM,
    Resource.CSI_NODE,
    Resource.CSI_DRIVER,
    Resource.CSI_STORAGE_CAPACITY,
    Resource.STORAGE_CLASS,
    Resource.RESOURCE_CLAIM,
    Resource.DEVICE_CLASS,
    Resource.POD_GROUP,
)


def registrations(
    plugins: Iterable[Any], required_resources: Collection[str] = ()
) -> list[Registration]:
    """Collect the registrations of a profile's plugins, implicit registrations included.

    ``required_resources`` are the event resources, besides ``Resource``, of the kinds that plugins
    required. Raises ``ConfigError`` for a plugin that registers for any other.

    kube-scheduler: buildQueueingHintMap, QueueingHintMapPerProfile, fillEnqueueExtensions.
    """
    found: list[Registration] = []
    for plugin in plugins:
        if hasattr(plugin, "events_to_register"):
            events = _events_of(plugin)
            _refuse_unwatched(plugin.name, events, required_resources)
            found += _with_node_taint(plugin.name, events)
        elif any(hasattr(plugin, method) for method in _REJECTING_METHODS):
            found += registrations_without_hints(plugin.name, required_resources)
    return found


def _refuse_unwatched(
    name: str, events: Iterable[ClusterEventWithHint], required_resources: Collection[str]
) -> None:
    """Reject registrations for kinds without a watch: such an event would never come."""
    known = {*Resource, *required_resources}
    wrong = {str(one.event.resource) for one in events if one.event.resource not in known}
    if wrong:
        text = f"nothing watches {', '.join(sorted(wrong))}, require the kind in the constructor"
        raise ConfigError([f'plugin "{name}": events_to_register: {text}'])


def _events_of(plugin: Any) -> Sequence[ClusterEventWithHint]:
    try:
        events = tuple(plugin.events_to_register())
    except Exception as problem:
        text = f'plugin "{plugin.name}": events_to_register: {safe_error_text(problem)}'
        raise ConfigError([text]) from problem
    wrong = [safe_repr(one) for one in events if not _is_registration(one)]
    if wrong:
        text = f"returned {', '.join(wrong)}, wanted ClusterEventWithHint"
        raise ConfigError([f'plugin "{plugin.name}": events_to_register: {text}'])
    waiting = [str(one.event.resource) for one in events if iscoroutinefunction(one.hint)]
    if waiting:
        text = f"the hint for {', '.join(waiting)} must not be async"
        raise ConfigError([f'plugin "{plugin.name}": events_to_register: {text}'])
    return events


def _is_registration(one: object) -> bool:
    return (
        isinstance(one, ClusterEventWithHint)
        and isinstance(one.event, ClusterEvent)
        and isinstance(one.event.resource, str)
        and isinstance(one.event.action, Action)
        and (one.hint is None or callable(one.hint))
    )


def registrations_without_hints(
    name: str, required_resources: Iterable[str] = ()
) -> list[Registration]:
    """Registrations of a plugin that names no events, or of the extenders: nearly all events.

    kube-scheduler: defaultEnqueueExtension, UnrollWildCardResource.
    """
    return [
        (name, ClusterEventWithHint(ClusterEvent(resource, Action.ALL), is_implicit=True))
        for resource in (*_RESOURCES_WITHOUT_HINTS, *required_resources)
    ]


def _with_node_taint(name: str, events: Sequence[ClusterEventWithHint]) -> Iterator[Registration]:
    """Add Node/UpdateNodeTaint to a registration for Node/Add.

    A node joins tainted and is untainted when it is ready, so for a pod the change of taints is
    when the node becomes available (scheduler.go: buildQueueingHintMap, v1.36).
    """
    node_actions = Action(0)
    for registered in events:
        if registered.event.resource is Resource.NODE:
            node_actions |= registered.event.action
        yield name, registered
    if node_actions & Action.ADD and not node_actions & Action.UPDATE_NODE_TAINT:
        taint = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
        yield name, ClusterEventWithHint(taint)


class Requeue(Enum):
    """How a waiting pod is requeued by an event. kube-scheduler: queueingStrategy."""

    SKIP = "skip"
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"


SKIP = Requeue.SKIP
AFTER_BACKOFF = Requeue.AFTER_BACKOFF
IMMEDIATELY = Requeue.IMMEDIATELY

Interest = Mapping[Waker, Sequence[ClusterEventWithHint]]
"""The registrations for one event, by profile and plugin."""

_Registrations = list[tuple[str, ClusterEventWithHint]]
_Change = tuple[ClusterEvent, Any, Any]


class HintTable:
    """All registrations of all profiles, looked up by event.

    kube-scheduler: QueueingHintMap.
    """

    def __init__(
        self,
        hints: Mapping[str, Sequence[Registration]],
        durations: Histogram | None = None,
        work: QueueWork | None = None,
    ) -> None:
        self._work = work or QueueWork()
        self._durations = durations
        self._calls_left: float = math.inf if durations is None else 1
        self.replace(hints)

    def replace(self, hints: Mapping[str, Sequence[Registration]]) -> None:
        """Forget all registrations; these are the ones now."""
        self._registrations = [
            (profile, plugin, registered)
            for profile, registered_events in hints.items()
            for plugin, registered in registered_events
        ]
        self._interest: dict[tuple[str, Action], Interest] = {}
        self._failed: set[str] = set()
        self._with_subjects: dict[Waker, list[ClusterEventWithHint]] = {}
        for profile, plugin, registered in self._registrations:
            if registered.subjects is not None:
                self._with_subjects.setdefault((profile, plugin), []).append(registered)

    def interest(self, event: ClusterEvent) -> Interest:
        """Return the registrations that match an event; may be empty."""
        key = (event.resource, event.action)
        found = self._interest.get(key)
        if found is None:
            by_waker: dict[Waker, list[ClusterEventWithHint]] = {}
            for profile, plugin, registered in self._registrations:
                if registered.event.matches(event):
                    by_waker.setdefault((profile, plugin), []).append(registered)
            found = self._interest[key] = by_waker
        return found

    def released(
        self, waker: Waker, registered: Sequence[ClusterEventWithHint]
    ) -> list[str] | None:
        """Return the pods that a plugin gated and would let pass; ``None`` if it does not say."""
        uids: list[str] = []
        for one in registered:
            if one.released is None:
                return None
            try:
                uids += [uid for uid in one.released() if isinstance(uid, str)]
            except BaseException as problem:
                if is_interrupt(problem):
                    raise
                self._report(waker[1], one, "released pods not found")
                return None
        return uids

    def subject_keys(self, wakers: Iterable[Waker], pod: PodInfo) -> list[SubjectKey]:
        """Return the subjects of a pod that plugins rejected."""
        found: dict[SubjectKey, None] = {}
        for waker in wakers:
            for one in self._with_subjects.get(waker, ()):
                assert one.subjects is not None
                keys = self._keys(waker, one, one.subjects.of_pod, pod)
                for key in (None,) if keys is None else keys:
                    found[waker, one.subjects, key] = None
        return list(found)

    def concerned(
        self, waker: Waker, registered: Sequence[ClusterEventWithHint], old: Any, new: Any
    ) -> list[SubjectKey] | None:
        """Return the subjects of an event for a plugin; ``None`` if it may concern any pod."""
        found: list[SubjectKey] = []
        for one in registered:
            if one.subjects is None:
                return None
            keys = self._keys(waker, one, one.subjects.of_event, old, new)
            if keys is None:
                return None
            found += [(waker, one.subjects, key) for key in (*keys, None)]
        return found

    def _keys(
        self,
        waker: Waker,
        registered: ClusterEventWithHint,
        function: Callable[..., Collection[str] | None],
        *args: Any,
    ) -> list[str] | None:
        try:
            keys = function(*args)
            if keys is None:
                return None
            found = list(keys)
            if isinstance(keys, str) or not all(isinstance(key, str) for key in found):
                raise TypeError(f"subjects: got {keys!r:.100}, wanted a collection of strings")
            return found
        except BaseException as problem:
            if is_interrupt(problem):
                raise
            self._report(waker[1], registered, "subjects not found")
            return None

    def interests(self, queued: QueuedPodInfo) -> Callable[[ClusterEvent], bool]:
        """Return a predicate: is an event registered by any plugin that rejected the pod.

        kube-scheduler: buildEventMap.
        """
        profile = queued.pod.spec.scheduler_name
        wakers = [(profile, plugin) for plugin in queued.rejector_plugins]

        def is_relevant(event: ClusterEvent) -> bool:
            interest = self.interest(event)
            return event.is_wildcard or any(waker in interest for waker in wakers)

        return is_relevant

    def is_pod_worth_requeuing(
        self, queued: QueuedPodInfo, event: ClusterEvent, old: Any, new: Any
    ) -> Requeue:
        """Evaluate the hints of the plugins that rejected one pod."""
        rejectors = queued.rejector_plugins
        if event.is_wildcard or not rejectors:
            return AFTER_BACKOFF
        matching = self._matching(queued.pod.spec.scheduler_name, rejectors, event)
        pending = _skipping_backoff(queued.pending_plugins, event)
        return self._evaluate(matching, queued.pod, pending, (event, old, new), SKIP)

    def most_urgent(
        self, queued: QueuedPodInfo, events: Iterable[tuple[ClusterEvent, Any, Any, object]]
    ) -> tuple[Requeue, str]:
        """What events mean to a pod, oldest first, and the label of the one that decides."""
        strategy, woken_by = SKIP, ""
        for event, old, new, _ in events:
            answer = self.is_pod_worth_requeuing(queued, event, old, new)
            if answer is IMMEDIATELY:
                return answer, event.label
            if answer is AFTER_BACKOFF and strategy is SKIP:
                strategy, woken_by = answer, event.label
                if not queued.pending_plugins:
                    break
        return strategy, woken_by

    def pods_worth_requeuing(
        self,
        group: WaitingGroup,
        pods: Collection[QueuedPodInfo],
        event: ClusterEvent,
        old: Any,
        new: Any,
        alike: Iterable[QueuedPodInfo] | None = None,
    ) -> Iterator[tuple[QueuedPodInfo, Requeue]]:
        """Evaluate an event for some pods of a group (at least one).

        Hints that depend only on the template are called once for all pods, and those of pods with
        a shared wait for the first of them. Pods that stay are omitted where no per-pod hint had to
        be called. Unless one has to be, ``alike`` are the pods to requeue if the group is to be
        woken.
        """
        pending, change = _skipping_backoff(group.pending_plugins, event), (event, old, new)
        shared: _Registrations = []
        single: _Registrations = []
        if event.is_wildcard:
            answer = AFTER_BACKOFF
        else:
            for match in self._matching(group.profile, group.rejector_plugins, event):
                registered = match[1]
                is_single = registered.per_pod and registered.hint is not None
                is_single = is_single and group.shared_wait is None
                (single if is_single else shared).append(match)
            first = next(iter(pods)).pod
            answer = self._evaluate(shared, first, pending, change, SKIP)
        if answer is SKIP and not single:
            return
        if group.is_crowd and not self._can_end(group.shared_wait, event):
            return
        if alike is not None and not single:
            for queued in alike:
                yield queued, answer
            return
        # A shared wait was proved by plugins that may be others now.
        woken = list(pods) if event is CONFIG_RELOAD else group.to_wake(pods)
        for queued in woken:
            own = self._evaluate(single, queued.pod, pending, change, answer) if single else answer
            yield queued, own

    def _can_end(self, wait: SharedWait | None, event: ClusterEvent) -> bool:
        if wait is None or not is_of_nodes(event):
            return True
        self._work.shared_waits += 1
        return wait.can_end()

    def _matching(
        self, profile: str, rejectors: frozenset[str], event: ClusterEvent
    ) -> _Registrations:
        interest = self.interest(event)
        return [
            (plugin, registered)
            for plugin in sorted(rejectors)
            for registered in interest.get((profile, plugin), ())
        ]

    def _evaluate(
        self,
        matching: _Registrations,
        pod: PodInfo,
        pending: frozenset[str],
        change: _Change,
        answer: Requeue,
    ) -> Requeue:
        """Call hints until the strategy cannot become more urgent."""
        for plugin, registered in matching:
            if answer is IMMEDIATELY or (answer is not SKIP and not pending):
                break
            if self._hint(plugin, registered, pod, change):
                is_awaited = plugin in pending and not registered.is_implicit
                answer = IMMEDIATELY if is_awaited else AFTER_BACKOFF
        return answer

    def _hint(
        self, plugin: str, registered: ClusterEventWithHint, pod: PodInfo, change: _Change
    ) -> bool:
        hint = registered.hint
        if hint is None:
            return True
        self._work.hint_calls += 1
        self._calls_left -= 1
        if not self._calls_left:
            hint = self._timed(plugin, change[0], hint)
        try:
            return hint(pod, change[1], change[2]) is not QueueingHint.SKIP
        except BaseException as problem:
            if is_interrupt(problem):
                raise
            self._report(plugin, registered, "queueing hint failed", pod=pod.key)
            return True

    def _report(
        self, plugin: str, registered: ClusterEventWithHint, problem: str, **about: str
    ) -> None:
        """Log the exception that is being handled, once per plugin."""
        if plugin not in self._failed:
            self._failed.add(plugin)
            log.exception(
                problem, extra={"plugin": plugin, "event": registered.event.label, **about}
            )

    def _timed(self, plugin: str, event: ClusterEvent, hint: HintFunction) -> HintFunction:
        """Measure one call. kube-scheduler: ObserveQueueingHintDurationAsync."""
        durations = self._durations
        assert durations is not None
        self._calls_left = TIMED_EVERY

        def timed(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
            label, began = "Error", stopwatch()
            try:
                answer = hint(pod, old, new)
                label = _SKIPS if answer is QueueingHint.SKIP else _QUEUES
                return answer
            finally:
                durations.of(plugin, event.label, label).observe(stopwatch() - began)

        return timed


def is_of_nodes(event: ClusterEvent) -> bool:
    """Whether all that an event changes is in the nodes and the pods on them."""
    return event.resource in (Resource.NODE, Resource.ASSIGNED_POD)


def _skipping_backoff(pending_plugins: frozenset[str], event: ClusterEvent) -> frozenset[str]:
    """The plugins for which an event also skips the backoff."""
    return frozenset() if event == ASSUMED_POD_FORGOTTEN else pending_plugins
