"""Scenarios of the queue, command by command; see ``scripts/*.txt``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

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
from ksched.queue import InvalidTransition, Place, registrations
from ksched.queue.places import ALLOWED
from ksched.testing.builders import PodBuilder, make_pod
from lab.scripts import Command, parse, play, run_script
from lab.watched_queue import WatchedQueue

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))
PROFILE = "default-scheduler"


def on(
    resource: Resource,
    action: Action,
    hint: Callable[[PodInfo, Any, Any], bool] | None = None,
    *,
    per_pod: bool = False,
) -> ClusterEventWithHint:
    def answer(pod: PodInfo, old: Any, new: Any) -> QueueingHint:
        assert hint is not None
        return QueueingHint.QUEUE if hint(pod, old, new) else QueueingHint.SKIP

    event = ClusterEvent(resource, action)
    return ClusterEventWithHint(event, answer if hint else None, per_pod=per_pod)


def is_the_same_pod(pod: PodInfo, old: Any, new: Any) -> bool:
    return bool(new.metadata.uid == pod.uid)


class Fit:
    """Wants nodes, and room on them; its hint believes events that say new=enough."""

    name: ClassVar[str] = "Fit"

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [
            on(Resource.NODE, Action.ADD),
            on(Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE, lambda pod, _, new: new == "enough"),
            on(Resource.POD, Action.DELETE),
            on(Resource.POD, Action.UPDATE_POD_SCALE_DOWN, is_the_same_pod, per_pod=True),
        ]


class Affinity:
    """Wants a neighbour with the same app label."""

    name: ClassVar[str] = "Affinity"

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [
            on(Resource.POD, Action.ADD, lambda pod, _, new: pod.labels.get("app") == new),
            on(Resource.POD, Action.UPDATE_POD_LABEL, is_the_same_pod, per_pod=True),
        ]


class Gang:
    """Answers PENDING until its group is complete."""

    name: ClassVar[str] = "Gang"

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [on(Resource.POD_GROUP, Action.ADD)]


class Broken:
    """Has a hint that raises."""

    name: ClassVar[str] = "Broken"

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [on(Resource.STORAGE_CLASS, Action.ADD, lambda pod, _, new: bool(1 / 0))]


class Gates:
    """Gates pods with scheduling gates."""

    name: ClassVar[str] = "Gates"

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return unresolvable("gated") if pod.spec.scheduling_gates else SUCCESS

    def events_to_register(self) -> list[ClusterEventWithHint]:
        action = Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
        return [on(Resource.POD, action, is_the_same_pod, per_pod=True)]


class Preemption:
    """Gates pods while their victims are being deleted (command ``block``)."""

    name: ClassVar[str] = "Preemption"

    def __init__(self) -> None:
        self.blocked: set[str] = set()

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return unresolvable("waiting for victims") if pod.name in self.blocked else SUCCESS

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [on(Resource.POD, Action.DELETE)]


class QueueScript:
    """Interprets the commands of a script and prints where everybody is."""

    def __init__(self) -> None:
        self.time = 0.0
        self.taken: set[tuple[Place, Place]] = set()
        self.templates = TemplateRegistry(ResourceAxis())
        self.builders: dict[str, PodBuilder] = {}
        self.popped: dict[str, QueuedPodInfo] = {}
        self.preemption = Preemption()
        self.queue = self.make_queue()

    def tables(self) -> dict[str, Any]:
        plugins = [Fit(), Affinity(), Gang(), Broken(), Gates(), self.preemption]
        gating = [(plugin.name, plugin.pre_enqueue) for plugin in (Gates(), self.preemption)]
        return {"pre_enqueue": {PROFILE: gating}, "hints": {PROFILE: registrations(plugins)}}

    def make_queue(self, **settings: Any) -> WatchedQueue:
        return WatchedQueue(
            now=lambda: self.time,
            sort_key=lambda queued: (-queued.pod.priority, queued.timestamp),
            **self.tables(),
            observer=self,
            rank=lambda queued: queued.pod.priority,
            **settings,
        )

    def moved(self, cause: str, source: Place, target: Place) -> None:
        self.taken.add((source, target))

    async def __call__(self, command: Command) -> str:
        handler = getattr(self, "do_" + command.name.replace("-", "_"))
        try:
            output = handler(*command.args, **command.options)
            if asyncio.iscoroutine(output):
                output = await output
        except InvalidTransition as failure:
            return str(failure)
        return output if output is not None else self.state()

    # -- commands ---------------------------------------------------------------------------------

    def do_settings(self, **settings: str) -> str:
        self.queue = self.make_queue(**{name: float(value) for name, value in settings.items()})
        return self.state()

    def do_add(self, name: str, **changes: str) -> None:
        self.queue.pod_added(self.build(make_pod(name), changes))

    def do_update(self, name: str, **changes: str) -> None:
        self.queue.pod_modified(self.build(self.builders.get(name) or make_pod(name), changes))

    def build(self, builder: PodBuilder, changes: dict[str, str]) -> PodInfo:
        for what, value in changes.items():
            match what:
                case "priority":
                    builder = builder.priority(int(value))
                case "cpu":
                    builder = builder.req(cpu=value)
                case "app":
                    builder = builder.label(app=value)
                case "gate":
                    gates = [{"name": value}] if value else []
                    builder = builder.merge({"spec": {"schedulingGates": gates}})
                case "nominated":
                    builder = builder.nominated(value)
                case _:
                    raise ValueError(what)
        pod = self.templates.pod_info(builder.obj())
        self.builders[pod.name] = builder
        return pod

    def do_delete(self, name: str) -> None:
        self.queue.pod_deleted(self.uid(name))

    async def do_pop(self) -> str | None:
        try:
            queued = await asyncio.wait_for(self.queue.pop(), 1)
        except TimeoutError:
            return "nobody is ready"
        if queued is None:
            return "closed"
        self.popped[queued.pod.name] = queued
        return None

    def do_take(self, leader: str, *names: str) -> None:
        for queued in self.queue.take(self.popped[leader], [self.uid(name) for name in names]):
            self.popped[queued.pod.name] = queued

    def do_put_back(self, name: str) -> None:
        self.queue.put_back(self.popped[name])

    def do_done(self, name: str) -> None:
        self.queue.done(self.uid(name))

    def do_reject(self, name: str, by: str = "", pending: str = "") -> None:
        rejectors = frozenset(filter(None, by.split(",")))
        waiting = frozenset(filter(None, pending.split(",")))
        self.queue.add_unschedulable_if_not_present(self.popped[name], rejectors | waiting, waiting)

    def do_fail(self, name: str) -> None:
        self.queue.add_unschedulable_if_not_present(self.popped[name])

    def do_event(
        self, what: str, old: str | None = None, new: str | None = None, up_to: str = ""
    ) -> None:
        event = event_named(what)
        check = (lambda pod: pod.priority <= int(up_to)) if up_to else None
        self.queue.move_all_to_active_or_backoff_queue(event, old, new, check)

    def do_activate(self, *names: str) -> None:
        pods = [self.templates.pod_info(self.builders[name].obj()) for name in names]
        self.queue.activate(pods)

    def do_advance(self, seconds: str) -> str:
        self.time += float(seconds)
        return f"time {self.time:.3f}"

    def do_flush_backoff(self) -> None:
        self.queue.flush_backoff_completed()

    def do_flush_leftover(self) -> None:
        self.queue.flush_unschedulable_leftover()

    def do_block(self, name: str) -> None:
        self.preemption.blocked.add(name)

    def do_unblock(self, name: str) -> None:
        self.preemption.blocked.discard(name)

    def do_nominate(self, name: str, node_name: str) -> str:
        self.queue.nominator.add(self.templates.pod_info(self.builders[name].obj()), node_name)
        return self.do_nominated(node_name)

    def do_nominated(self, node_name: str) -> str:
        pods = self.queue.nominator.nominated_pods_for_node(node_name)
        return ", ".join(f"{pod.name} priority={pod.priority}" for pod in pods) or "nobody"

    def do_reload(self, initial: str = "1", longest: str = "10") -> None:
        self.queue.reconfigure(
            **self.tables(),
            pod_initial_backoff_seconds=int(initial),
            pod_max_backoff_seconds=int(longest),
        )

    def do_close(self) -> None:
        self.queue.close()

    def do_counts(self, name: str) -> str:
        queued = self.queue.get(self.uid(name))
        assert queued is not None
        first = queued.initial_attempt_timestamp
        return (
            f"attempts={queued.attempts} unschedulable={queued.unschedulable_count} "
            f"errors={queued.consecutive_errors_count} first_ready={first} "
            f"priority={queued.pod.priority}"
        )

    def do_events(self) -> str:
        return f"{self.queue.statistics().in_flight_events} kept"

    def do_rejections(self) -> str:
        counts = sorted(self.queue.rejections().items())
        return "\n".join(f"{plugin}: {count}" for (plugin, _), count in counts) or "none"

    def do_story(self, name: str) -> str:
        return "\n".join(map(str, self.queue.story(self.uid(name))))

    # -- output -----------------------------------------------------------------------------------

    def uid(self, name: str) -> str:
        return self.builders[name].obj().metadata.uid

    def state(self) -> str:
        lines = [
            f"{place.value}: {', '.join(self.describe(place, queued) for queued in pods)}"
            for place, found in self.queue.pending_pods().items()
            if (pods := list(found))
        ]
        return "\n".join(lines) or "nobody"

    def describe(self, place: Place, queued: QueuedPodInfo) -> str:
        name = queued.pod.name
        match place:
            case Place.BACKOFF:
                error = "" if queued.rejector_plugins else " after an error"
                return f"{name} until={queued.backoff_expiration:.3f}{error}"
            case Place.UNSCHEDULABLE:
                pending = "".join(f"; {one} pending" for one in sorted(queued.pending_plugins))
                return f"{name} ({', '.join(sorted(queued.rejector_plugins))}{pending})"
            case Place.GATED:
                return f"{name} (by {queued.gating_plugin})"
        return name


def event_named(text: str) -> ClusterEvent:
    """``Node/Add`` or ``*``."""
    if text == "*":
        return ClusterEvent(Resource.WILDCARD, Action.ALL, "Wildcard")
    kind, _, wanted = text.rpartition("/")
    resource = Resource(kind)
    for action in (*Action, Action.UPDATE):
        event = ClusterEvent(resource, action)
        if event.label == f"{kind}{wanted}":
            return event
    raise ValueError(text)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
async def test_script_prints_what_it_says(path: Path, rewrite: bool) -> None:
    await run_script(path, QueueScript(), rewrite=rewrite)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_ends_with_a_story(path: Path) -> None:
    assert parse(path.read_text())[-1].command.startswith("story ")


async def test_scripts_take_every_allowed_way() -> None:
    taken = set()
    for path in SCRIPTS:
        script = QueueScript()
        await play(parse(path.read_text()), script)
        taken |= script.taken
    assert taken == ALLOWED
