"""Whether an event makes a waiting pod worth another attempt.

Plugins register events, each with an optional hint; a pod is woken when a plugin that rejected it
registered the event and its hint does not object (backend/queue/scheduling_queue.go:
isPodWorthRequeuing, v1.36). A hint that fails counts as a yes: a useless attempt is cheaper than a
pod that never wakes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from ksched.cache.pod_info import PodInfo
from ksched.errors import ConfigError
from ksched.framework.cluster_events import (
    ASSUMED_POD_FORGOTTEN,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
)
from ksched.framework.foreign import is_interrupt, shown, told
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.queue.unschedulable import Group, Waker

log = logging.getLogger(__name__)

Registration = tuple[str, ClusterEventWithHint]
"""A plugin's name and an event it registered for."""

_REJECTING_POINTS = ("pre_enqueue", "pre_filter", "filter", "filter_nodes", "reserve", "permit")

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
    plugins: Iterable[Any], custom_resources: Collection[str] = ()
) -> list[Registration]:
    """Collect what the plugins of a profile registered for, implicit registrations included.

    ``custom_resources`` are the event resources of the kinds that plugins brought along. Raises
    ``ConfigError`` for a plugin that registers for something else.

    kube-scheduler: buildQueueingHintMap, QueueingHintMapPerProfile, fillEnqueueExtensions.
    """
    found: list[Registration] = []
    for plugin in plugins:
        if hasattr(plugin, "events_to_register"):
            events = _events_of(plugin)
            _refuse_unwatched(plugin.name, events, custom_resources)
            found += _with_node_taint(plugin.name, events)
        elif any(hasattr(plugin, point) for point in _REJECTING_POINTS):
            found += registrations_without_hints(plugin.name, custom_resources)
    return found


def _refuse_unwatched(
    name: str, events: Iterable[ClusterEventWithHint], custom_resources: Collection[str]
) -> None:
    """A plugin that registers for what nothing watches would wait for ever."""
    known = {*Resource, *custom_resources}
    wrong = {str(one.event.resource) for one in events if one.event.resource not in known}
    if wrong:
        text = f"nothing watches {', '.join(sorted(wrong))}, require the kind in the constructor"
        raise ConfigError([f'plugin "{name}": events_to_register: {text}'])


def _events_of(plugin: Any) -> Sequence[ClusterEventWithHint]:
    try:
        events = tuple(plugin.events_to_register())
    except Exception as problem:
        text = f'plugin "{plugin.name}": events_to_register: {told(problem)}'
        raise ConfigError([text]) from problem
    wrong = [shown(one) for one in events if not _is_registration(one)]
    if wrong:
        text = f"returned {', '.join(wrong)}, wanted ClusterEventWithHint"
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
    name: str, custom_resources: Iterable[str] = ()
) -> list[Registration]:
    """Register a plugin (or the extenders) that names no events for nearly all of them."""
    return [
        (name, ClusterEventWithHint(ClusterEvent(resource, Action.ALL), is_implicit=True))
        for resource in (*_RESOURCES_WITHOUT_HINTS, *custom_resources)
    ]


def _with_node_taint(name: str, events: Sequence[ClusterEventWithHint]) -> Iterator[Registration]:
    """Add Node/UpdateNodeTaint for whoever waits for new nodes.

    A node joins tainted and is untainted when it is ready, so to the pod the change of taints is
    the arrival of the node (scheduler.go: buildQueueingHintMap, v1.36).
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
    """What an event means to a waiting pod. kube-scheduler: queueingStrategy."""

    SKIP = "skip"
    AFTER_BACKOFF = "after backoff"
    IMMEDIATELY = "immediately"


SKIP = Requeue.SKIP
AFTER_BACKOFF = Requeue.AFTER_BACKOFF
IMMEDIATELY = Requeue.IMMEDIATELY

Interest = Mapping[Waker, Sequence[ClusterEventWithHint]]
"""Who registered for one event, by profile and plugin."""

_Questions = list[tuple[str, ClusterEventWithHint]]


class HintTable:
    """All registrations of all profiles, looked up by event.

    kube-scheduler: QueueingHintMap.
    """

    def __init__(self, hints: Mapping[str, Sequence[Registration]]) -> None:
        self._registrations = [
            (profile, plugin, registered)
            for profile, registered_events in hints.items()
            for plugin, registered in registered_events
        ]
        self._interest: dict[tuple[str, Action], Interest] = {}
        self._failed: set[str] = set()

    def interest(self, event: ClusterEvent) -> Interest:
        """Return who registered for an event; empty if nobody did."""
        key = (event.resource, event.action)
        found = self._interest.get(key)
        if found is None:
            by_waker: dict[Waker, list[ClusterEventWithHint]] = {}
            for profile, plugin, registered in self._registrations:
                if registered.event.matches(event):
                    by_waker.setdefault((profile, plugin), []).append(registered)
            found = self._interest[key] = by_waker
        return found

    def interests(self, queued: QueuedPodInfo) -> Callable[[ClusterEvent], bool]:
        """Tell by kind which events the plugins that rejected a pod registered for."""
        profile = queued.pod.spec.scheduler_name
        wakers = [(profile, plugin) for plugin in queued.rejector_plugins]

        def is_wanted(event: ClusterEvent) -> bool:
            interest = self.interest(event)
            return event.is_wildcard or any(waker in interest for waker in wakers)

        return is_wanted

    def is_pod_worth_requeuing(
        self, queued: QueuedPodInfo, event: ClusterEvent, old: Any, new: Any
    ) -> Requeue:
        """Ask the plugins that rejected one pod."""
        rejectors = queued.rejector_plugins
        if event.is_wildcard or not rejectors:
            return AFTER_BACKOFF
        questions = self._questions(queued.pod.spec.scheduler_name, rejectors, event)
        pending = _skipping_backoff(queued.pending_plugins, event)
        return self._ask(questions, queued.pod, pending, old, new, SKIP)

    def pods_worth_requeuing(
        self,
        group: Group,
        pods: Collection[QueuedPodInfo],
        event: ClusterEvent,
        old: Any,
        new: Any,
    ) -> Iterator[tuple[QueuedPodInfo, Requeue]]:
        """Ask the plugins that rejected a group about some of its pods, one at least.

        A hint that knows only templates is asked once. Pods that none is asked about singly are
        left out if they stay.
        """
        pending = _skipping_backoff(group.pending_plugins, event)
        shared: _Questions = []
        single: _Questions = []
        if event.is_wildcard:
            answer = AFTER_BACKOFF
        else:
            for question in self._questions(group.profile, group.rejector_plugins, event):
                registered = question[1]
                alone = registered.per_pod and registered.hint is not None
                (single if alone else shared).append(question)
            answer = self._ask(shared, next(iter(pods)).pod, pending, old, new, SKIP)
        if answer is SKIP and not single:
            return
        for queued in list(pods):
            own = self._ask(single, queued.pod, pending, old, new, answer) if single else answer
            yield queued, own

    def _questions(
        self, profile: str, rejectors: frozenset[str], event: ClusterEvent
    ) -> _Questions:
        interest = self.interest(event)
        return [
            (plugin, registered)
            for plugin in sorted(rejectors)
            for registered in interest.get((profile, plugin), ())
        ]

    def _ask(
        self,
        questions: _Questions,
        pod: PodInfo,
        pending: frozenset[str],
        old: Any,
        new: Any,
        answer: Requeue,
    ) -> Requeue:
        """Ask until the answer cannot become more urgent than it is."""
        for plugin, registered in questions:
            if answer is IMMEDIATELY or (answer is not SKIP and not pending):
                break
            if self._hint(plugin, registered, pod, old, new):
                is_awaited = plugin in pending and not registered.is_implicit
                answer = IMMEDIATELY if is_awaited else AFTER_BACKOFF
        return answer

    def _hint(
        self, plugin: str, registered: ClusterEventWithHint, pod: PodInfo, old: Any, new: Any
    ) -> bool:
        if registered.hint is None:
            return True
        try:
            return registered.hint(pod, old, new) is not QueueingHint.SKIP
        except BaseException as problem:
            if is_interrupt(problem):
                raise
            if plugin not in self._failed:
                self._failed.add(plugin)
                log.exception(
                    "queueing hint failed",
                    extra={"plugin": plugin, "event": registered.event.label, "pod": pod.key},
                )
            return True


def _skipping_backoff(pending_plugins: frozenset[str], event: ClusterEvent) -> frozenset[str]:
    """The plugins for which an event ends the backoff as well as the wait."""
    return frozenset() if event == ASSUMED_POD_FORGOTTEN else pending_plugins
