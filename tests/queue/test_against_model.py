"""The queue against a naive model: plain lists, everything recomputed from scratch.

The model keeps every event for ever and asks its own few lines of hints about each pod alone, so
grouping, indexing, lazy heaps and the freeing of events have nothing to hide behind. The same walk
is taken twice: long and at random by seed, and short by hypothesis, which shrinks what it finds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import floor
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ksched.cache.pod_info import PodInfo, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.framework import (
    SUCCESS,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueuedPodInfo,
    QueueingHint,
    Resource,
    Status,
    unresolvable,
)
from ksched.queue import Place, registrations, wake_ups
from ksched.testing.builders import make_pod
from lab.watched_queue import WatchedQueue

T = TypeVar("T")
Choose = Callable[[list[Any]], Any]

TICK = 0.0625
"""Every step takes a moment, so no two pods have equal timestamps; exact in binary."""
MAX_WAIT = 60.0
NAMES = [str(number) for number in range(6)]
WAITING = (Place.UNSCHEDULABLE, Place.GATED)

EVENTS = {
    "node": ClusterEvent(Resource.NODE, Action.ADD),
    "label": ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL),
    "gone": ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE),
    "group": ClusterEvent(Resource.POD_GROUP, Action.ADD),
    "volume": ClusterEvent(Resource.PERSISTENT_VOLUME, Action.ADD),
    "nobody's": ClusterEvent(Resource.NODE, Action.DELETE),
    "everybody's": ClusterEvent(Resource.WILDCARD, Action.ALL, "Wildcard"),
}
PROFILES = {"first": ["A", "B", "C", "D", "G"], "second": ["A", "C"]}


@dataclass
class ModelPod:
    name: str
    profile: str
    app: str
    priority: int
    place: Place = Place.ABSENT
    timestamp: float = 0.0
    flushed: float = -1e9
    rejectors: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    rejections: int = 0
    errors: int = 0
    owed: float = -1e9
    tries: int = 0
    popped_at: int = 0
    is_deleted: bool = False
    coming: tuple[str, int] | None = None
    """App and priority of the version that arrived during the attempt."""
    handle: QueuedPodInfo | None = None
    """What the queue gave out at pop."""

    @property
    def order(self) -> tuple[int, float]:
        return (-self.priority, self.timestamp)

    @property
    def expiry(self) -> float:
        failures = self.errors or self.rejections
        start = self.timestamp if self.errors else max(self.timestamp, self.owed)
        return floor(start + min(2 ** (failures - 1), 10)) if failures else -1e9


def wakes(plugin: str, kind: str, new: Any, name: str, app: str) -> bool:
    """What each plugin's registrations and hints say, in the fewest words."""
    match plugin, kind:
        case ("A", "node") | ("D", "group") | ("G", "volume"):
            return True
        case "A", "own label":
            return bool(new == name)
        case "B", "label":
            return bool(new == app)
        case "C", "gone":
            return bool(new == int(name) % 2)
    return False


class Plugin:
    """One of the plugins above, in the queue's own terms."""

    def __init__(self, name: str) -> None:
        self.name = name

    def events_to_register(self) -> list[ClusterEventWithHint]:
        own = ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL)
        gone = ClusterEvent(Resource.POD, Action.DELETE)
        return {
            "A": [
                ClusterEventWithHint(EVENTS["node"]),
                ClusterEventWithHint(own, self.hint("own label"), per_pod=True),
            ],
            "B": [ClusterEventWithHint(EVENTS["label"], self.hint("label"), per_pod=False)],
            "C": [ClusterEventWithHint(gone, self.hint("gone"), per_pod=True)],
            "D": [ClusterEventWithHint(EVENTS["group"])],
            "G": [ClusterEventWithHint(EVENTS["volume"])],
        }[self.name]

    def hint(self, kind: str) -> Callable[[PodInfo, Any, Any], QueueingHint]:
        def answer(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
            seen = new.metadata.name if kind == "own label" else new
            yes = wakes(self.name, kind, seen, pod.name, pod.labels["app"])
            return QueueingHint.QUEUE if yes else QueueingHint.SKIP

        return answer


class Walk:
    """Queue and model, taken through the same steps; ``choose`` decides which."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.time = 0.0
        self.pods: dict[str, ModelPod] = {}
        self.events: list[tuple[str, Any, str | None]] = []
        self.blocked: set[str] = set()
        self.in_a_row = 0
        self.templates = TemplateRegistry(ResourceAxis())
        self.queue = WatchedQueue(
            now=lambda: self.time,
            sort_key=lambda queued: (-queued.pod.priority, queued.timestamp),
            pre_enqueue={"first": [("G", self.pre_enqueue)]},
            hints={
                profile: registrations(Plugin(name) for name in plugins)
                for profile, plugins in PROFILES.items()
            },
            rank=lambda queued: queued.pod.priority,
        )
        # What happens most in a cluster is listed more than once.
        self.steps = [
            (self.add, lambda: len(self.pods) < len(NAMES)),
            (self.update, self.known),
            (self.delete, lambda: self.pods),
            (self.attempt, self.ready),
            (self.attempt, self.ready),
            (self.pop, self.ready),
            (self.come_back, lambda: self.at(Place.IN_FLIGHT)),
            (self.done, lambda: self.at(Place.IN_FLIGHT)),
            (self.bind_fails, lambda: self.at(Place.ABSENT)),
            (self.event, lambda: True),
            (self.event, lambda: True),
            (self.event, lambda: True),
            (self.activate, lambda: self.pods),
            (self.block, lambda: True),
            (self.advance, lambda: True),
        ]

    def step(self) -> None:
        self.time += TICK
        self.choose([step for step, is_possible in self.steps if is_possible()])()
        self.check()

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return unresolvable("blocked") if pod.name in self.blocked else SUCCESS

    # -- the model --------------------------------------------------------------------------------

    def at(self, *places: Place) -> list[ModelPod]:
        return [pod for pod in self.pods.values() if pod.place in places]

    def known(self) -> list[ModelPod]:
        """Pods of which the watch may tell the queue something new."""
        pods = self.pods.values()
        return [pod for pod in pods if pod.place is not Place.ABSENT and not pod.is_deleted]

    def ready(self) -> ModelPod | None:
        if self.at(Place.ACTIVE):
            return self.in_turn()[0]
        early = [
            pod for pod in self.at(Place.BACKOFF) if pod.rejectors and pod.owed < floor(self.time)
        ]
        return min(early, key=lambda pod: (pod.expiry, pod.order), default=None)

    def in_turn(self) -> list[ModelPod]:
        """The active pods in the order of their turns, each chosen by looking at all of them."""
        active, in_a_row, ordered = self.at(Place.ACTIVE), self.in_a_row, []
        while active:
            next_pod, in_a_row = self.turn(active, in_a_row)
            active.remove(next_pod)
            ordered.append(next_pod)
        return ordered

    def turn(self, active: list[ModelPod], in_a_row: int) -> tuple[ModelPod, int]:
        """Whose turn it is, and how many first attempts have then gone ahead in a row."""
        best = min(active, key=lambda pod: pod.order)
        if not best.tries:
            retries = any(pod.tries for pod in active)
            return best, in_a_row if retries else 0
        equals = [pod for pod in active if not pod.tries and pod.priority == best.priority]
        if equals and in_a_row < 4:
            return min(equals, key=lambda pod: pod.order), in_a_row + 1
        return best, 0

    def urgency(self, pod: ModelPod, kind: str, new: Any) -> int:
        """0: stays, 1: after backoff, 2: immediately."""
        if kind == "everybody's":
            return 1
        said_yes = {
            plugin
            for plugin in pod.rejectors
            if plugin in PROFILES[pod.profile] and wakes(plugin, kind, new, pod.name, pod.app)
        }
        return 2 if said_yes & pod.pending else 1 if said_yes else 0

    def send(self, pod: ModelPod, urgency: int) -> None:
        if not urgency:
            pod.place = Place.UNSCHEDULABLE
        elif pod.profile == "first" and pod.name in self.blocked:
            pod.place = Place.GATED
            pod.rejectors = pod.rejectors | {"G"}
        elif urgency == 1 and pod.expiry >= floor(self.time):
            pod.place = Place.BACKOFF
        else:
            pod.place = Place.ACTIVE

    def fail(self, pod: ModelPod, by: set[str], pending: set[str]) -> None:
        pod.timestamp = self.time
        pod.rejectors, pod.pending = by, pending
        if by:
            pod.rejections, pod.errors = pod.rejections + 1, 0
        else:
            pod.errors += 1
        if pod.coming:
            (pod.app, pod.priority), pod.coming = pod.coming, None

    def info(self, pod: ModelPod) -> PodInfo:
        app, priority = pod.coming or (pod.app, pod.priority)
        builder = make_pod(pod.name).scheduler(pod.profile).priority(priority).label(app=app)
        return self.templates.pod_info(builder.obj())

    # -- pods come, change and go -----------------------------------------------------------------

    def add(self) -> None:
        name = next(name for name in NAMES if name not in self.pods)
        profile, app = self.choose(list(PROFILES)), self.choose(["db", "web"])
        pod = ModelPod(name, profile, app, self.choose([0, 1]), timestamp=self.time)
        self.pods[name] = pod
        self.send(pod, 2)
        self.queue.pod_added(self.info(pod))

    def update(self) -> None:
        pod = self.choose(self.known())
        app, priority = self.choose(["db", "web"]), self.choose([0, 1, 2])
        relabelled = app != (pod.coming or (pod.app, 0))[0]
        if pod.place is Place.IN_FLIGHT:
            pod.coming = (app, priority)
            self.events.append(("own label" if relabelled else "own update", pod.name, pod.name))
        else:
            pod.app, pod.priority = app, priority
            if relabelled and pod.place in WAITING:
                urgency = self.urgency(pod, "own label", pod.name)
                if urgency:
                    self.send(pod, urgency)
        self.queue.pod_modified(self.info(pod))

    def delete(self) -> None:
        pod = self.choose(list(self.pods.values()))
        if pod.place is Place.IN_FLIGHT:
            pod.is_deleted = True
        else:
            del self.pods[pod.name]
        self.queue.pod_deleted(make_pod(pod.name).obj().metadata.uid)

    # -- attempts ---------------------------------------------------------------------------------

    def pop(self) -> None:
        expected = self.ready()
        assert expected is not None
        pop = self.queue.pop()
        assert pop.send(None) is None, "pop did not suspend"
        with pytest.raises(StopIteration) as returned:
            pop.send(None)
        expected.handle = returned.value.value
        assert expected.handle is not None
        assert expected.handle.pod.name == expected.name
        if expected.place is Place.BACKOFF:
            expected.owed = expected.expiry
        else:
            _, self.in_a_row = self.turn(self.at(Place.ACTIVE), self.in_a_row)
        expected.tries += 1
        expected.place = Place.IN_FLIGHT
        expected.popped_at = len(self.events)

    def attempt(self) -> None:
        """The common case: the next pods are tried and rejected for the same reasons."""
        by = self.choose(["B", "BD", "A", "C", "D", "AD", "BC", ""])
        is_pending = self.choose([False, True])
        for _ in range(self.choose([1, 3, 6])):
            pod = self.ready()
            if pod is not None:
                self.pop()
                self.take_back(pod, set(by), is_pending)
                self.time += TICK

    def come_back(self) -> None:
        by = self.choose(["B", "BD", "A", "C", "D", "AD", "BC", ""])
        pod = self.choose(self.at(Place.IN_FLIGHT))
        self.take_back(pod, set(by), self.choose([False, True]))

    def take_back(self, pod: ModelPod, by: set[str], is_pending: bool) -> None:
        pending = by & {"D"} if is_pending else set()
        if pod.is_deleted:
            del self.pods[pod.name]
        else:
            self.fail(pod, by, pending)
            since = [
                self.urgency(pod, kind, new)
                for kind, new, only in self.events[pod.popped_at :]
                if only in (None, pod.name)
            ]
            self.send(pod, max(since, default=0) if by else 1)
        assert pod.handle is not None
        self.queue.add_unschedulable_if_not_present(pod.handle, frozenset(by), frozenset(pending))

    def done(self) -> None:
        pod = self.choose(self.at(Place.IN_FLIGHT))
        pod.place = Place.ABSENT
        self.queue.done(pod.handle.uid)
        if pod.is_deleted:
            del self.pods[pod.name]

    def bind_fails(self) -> None:
        pod = self.choose(self.at(Place.ABSENT))
        self.queue.pending.put(self.info(pod))
        self.fail(pod, set(), set())
        self.send(pod, 1)
        self.queue.add_unschedulable_if_not_present(pod.handle)

    # -- wake-ups ---------------------------------------------------------------------------------

    def event(self) -> None:
        kind = self.choose(["label", "gone", "node", "group", "volume", "nobody's", "everybody's"])
        choices: dict[str, list[Any]] = {"label": ["db", "web"], "gone": [0, 1]}
        new = self.choose(choices.get(kind, [None]))
        if kind != "nobody's":
            self.events.append((kind, new, None))
        for pod in self.at(*WAITING):
            is_deaf = pod.place is Place.GATED and kind not in ("volume", "everybody's")
            urgency = 0 if is_deaf else self.urgency(pod, kind, new)
            if urgency:
                self.send(pod, urgency)
        self.queue.move_all_to_active_or_backoff_queue(EVENTS[kind], None, new)

    def activate(self) -> None:
        pod = self.choose(list(self.pods.values()))
        if pod.place is Place.IN_FLIGHT:
            self.events.append(("everybody's", None, pod.name))
        elif pod.place is Place.BACKOFF:
            pod.place = Place.ACTIVE
        elif pod.place in WAITING:
            self.send(pod, 2)
        self.queue.activate([self.info(pod)])

    def block(self) -> None:
        self.blocked = {name for name in NAMES if self.choose([False, False, True])}

    def advance(self) -> None:
        self.time += self.choose([0.25, 0.5, 1.0, 2.0, 61.0])
        if self.choose([False, True]):
            for pod in self.at(Place.BACKOFF):
                if pod.expiry < floor(self.time):
                    pod.place = Place.ACTIVE
            self.queue.flush_backoff_completed()
        if self.choose([False, True]):
            for pod in self.at(*WAITING):
                if self.time - max(pod.timestamp, pod.flushed) > MAX_WAIT:
                    pod.flushed = self.time
                    self.send(pod, 1)
            self.queue.flush_unschedulable_leftover()

    # -- what must always hold --------------------------------------------------------------------

    def check(self) -> None:
        listed = {at: list(pods) for at, pods in self.queue.pending_pods().items()}
        for place, queued in listed.items():
            names = [one.pod.name for one in queued]
            assert sorted(names) == sorted(pod.name for pod in self.at(place)), place
        in_turn = [pod.name for pod in self.in_turn()]
        assert [one.pod.name for one in listed[Place.ACTIVE]] == in_turn

        ages = [pod.popped_at for pod in self.at(Place.IN_FLIGHT)]
        needed = len(self.events) - min(ages, default=len(self.events))
        assert self.queue.statistics().in_flight_events == needed

        counted: dict[tuple[str, str], int] = {}
        for pod in self.at(Place.ACTIVE, Place.BACKOFF, *WAITING):
            for plugin in pod.rejectors:
                counted[plugin, pod.profile] = counted.get((plugin, pod.profile), 0) + 1
        assert dict(self.queue.rejections()) == counted


class SlicedWalk(Walk):
    """The same with wake-ups of one step at a time, which end when the model's order depends on it.

    What changes the outcome of a question (other labels, blocked pods, time) or the order of pods
    comes after all questions were asked; all else may come between.
    """

    def step(self) -> None:
        self.time += TICK
        step = self.choose([step for step, is_possible in self.steps if is_possible()])
        if step in (self.update, self.attempt, self.pop, self.block, self.advance):
            self.finish()
        step()
        if self.choose([False, True]):
            self.finish()
            self.check()

    def finish(self) -> None:
        while self.queue._wake_ups.unfinished:
            self.queue.continue_wake_ups()


@pytest.mark.parametrize("seed", range(30))
def test_sliced_wake_ups_end_where_the_model_ends(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_ups, "PODS_PER_SLICE", 1)
    walk = SlicedWalk(random.Random(seed).choice)
    for _ in range(600):
        walk.step()


@pytest.mark.parametrize("seed", range(30))
def test_long_walks_end_where_the_model_ends(seed: int) -> None:
    walk = Walk(random.Random(seed).choice)
    for _ in range(600):
        walk.step()


@settings(max_examples=30, deadline=None)
@given(data=st.data(), steps=st.integers(1, 40))
def test_short_walks_end_where_the_model_ends(data: st.DataObject, steps: int) -> None:
    walk = Walk(lambda options: data.draw(st.sampled_from(options)))
    for _ in range(steps):
        walk.step()
