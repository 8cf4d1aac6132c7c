"""What happens to a scheduler, put into a bounded queue as it happens.

Attached from outside: watches, cache and cycle have a place for one who listens, which is empty
without a journal. Nothing is encoded here, and nothing waits. If the queue is full the recording
stops, because a record that is missing makes all later ones wrong; it starts again with the whole
state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ksched.api.objects import Node, Pod
from ksched.api.resources import NODES, PODS, ApiResource
from ksched.api.watched_kinds import HasMetadata, WatchedKind, watched_kind
from ksched.cache.cache import PlacementListener
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo
from ksched.cache.storage.volumes import Volumes
from ksched.client.watch_store import Handler
from ksched.devices.claim_store import ClaimStore
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.profiles import Profile
from ksched.journal.encoding import (
    ClaimsItem,
    Item,
    ObjectItem,
    PodItem,
    VolumesItem,
    is_left_out,
    is_same_node,
    is_same_pod,
)
from ksched.journal.records import (
    Assumed,
    Began,
    Bound,
    Decided,
    Gone,
    Header,
    Nominated,
    Off,
    Together,
)
from ksched.scheduling.decisions import Decision
from ksched.scheduling.scheduler import Scheduler
from ksched.scheduling.scheduling_cycle import Placed, Rejected

T = TypeVar("T", bound=HasMetadata)

MAX_WAITING: Final = 50_000
"""Records that are not written yet; more than ten times what a second has."""


class Tap(Generic[T]):
    """Between a watch and its handler: notes each change after it was handled."""

    def __init__(self, handler: Handler[T], note: Callable[[T | None, T | None], None]) -> None:
        self._handler, self._note = handler, note

    def synced(self) -> None:
        self._handler.synced()

    def added(self, obj: T) -> None:
        try:
            self._handler.added(obj)
        finally:
            self._note(None, obj)

    def modified(self, old: T, new: T) -> None:
        try:
            self._handler.modified(old, new)
        finally:
            self._note(old, new)

    def deleted(self, obj: T) -> None:
        try:
            self._handler.deleted(obj)
        finally:
            self._note(obj, None)


class Placements:
    """Passes what the cache reports to the recording, and to who listened before."""

    def __init__(self, recording: Recording, other: PlacementListener | None) -> None:
        self._recording, self._other = recording, other

    def placed(self, pod: PodInfo, *, is_assumed: bool) -> None:
        if self._other is not None:
            self._other.placed(pod, is_assumed=is_assumed)
        self._recording.placed(pod, is_assumed=is_assumed)

    def displaced(self, uid: str) -> None:
        if self._other is not None:
            self._other.displaced(uid)
        self._recording.displaced(uid)


class NewFile(NamedTuple):
    """Where in the queue another file begins: its header, and the whole state at that moment."""

    header: Header
    state: Iterator[Item]


class Recording:
    """The records of one scheduler that are still to be written, oldest first."""

    def __init__(self, scheduler: Scheduler, most: int) -> None:
        self._scheduler, self._most = scheduler, most
        self._cache, self._pending = scheduler.cache, scheduler.pending
        self.waiting: deque[Item | NewFile] = deque()
        self.is_on = False
        self.dropped = 0
        """Records that found no room."""
        self._is_short = False
        self._deciding = ""
        self._is_marked = False
        self._start = 0
        self._chosen = ""
        self._decided_alone: set[str] = set()
        self._nominations = scheduler.nominator.cursor()
        self._nominated: set[str] = set()
        self._claims = scheduler.listers.known_view(ClaimStore)
        self._volumes = scheduler.listers.known_view(Volumes)
        self._overlays: dict[str, dict[str, Any]] = {}
        scheduler.watches.tap(self._tapped)
        self._cache.listener = Placements(self, self._cache.listener)
        scheduler.cycle.observer = self
        scheduler.decisions.observe(self._observed)

    # -- on and off -----------------------------------------------------------------------------

    def start(self) -> Iterator[Item] | None:
        """Record from now on; returns the whole state as it is. ``None`` during a cycle."""
        return None if self._scheduler.cycle.is_running else self.start_over()

    def start_over(self) -> Iterator[Item]:
        """As ``start``, by the one that holds up all cycles."""
        self.is_on, self._is_short = True, False
        self._deciding = ""
        self._nominations.start_over()
        self._nominated.clear()
        self._overlays.clear()
        return self._state()

    def stop(self) -> None:
        """Drop what is not written, and record nothing more until ``start``."""
        self.is_on = False
        self.dropped += len(self.waiting)
        self.waiting.clear()

    def _state(self) -> Iterator[Item]:
        """The state now: the objects are collected at once and made records of later."""
        objects = [
            (kind, list(lister))
            for kind, lister in self._scheduler.listers.required().items()
            if not is_left_out(kind)
        ]
        infos = list(self._nodes())
        nodes = [info.node for info in infos]
        pods = [pod for info in infos for pod in info.pods.values()]
        if len(pods) < self._cache.statistics().pods:
            # The rest is on nodes that are gone.
            known = {pod.uid for pod in pods}
            pods += [pod for pod in self._cache.pods() if pod.uid not in known]
        assumed = frozenset(self._cache.assumed())
        pending = list(self._pending)
        node_kind = watched_kind(Node)

        def items() -> Iterator[Item]:
            for kind, found in objects:
                for obj in found:
                    yield ObjectItem(kind, obj)
            for node in nodes:
                yield ObjectItem(node_kind, node)
            for pod in pending:
                yield PodItem(pod)
            for pod in pods:
                yield PodItem(pod, pod.uid in assumed)

        return items()

    def _nodes(self) -> Iterator[NodeInfo]:
        """Nodes in the order of the snapshot, which a search over a part of them follows."""
        snapshot = self._cache.snapshot
        names = [snapshot.table.infos[row].name for row in snapshot.order.tolist()]
        for name in dict.fromkeys((*names, *self._cache.node_names())):
            info = self._cache.get_node(name)
            if info is not None:
                yield info

    def _put(self, item: Item) -> None:
        if self._deciding and not self._is_marked:
            self._is_marked = True
            self._put(Began(uid=self._deciding, start=self._start))
        if not self.is_on:
            self.dropped += self._is_short
        elif len(self.waiting) < self._most:
            self.waiting.append(item)
        else:
            self.is_on, self._is_short = False, True
            self.dropped += 1

    @property
    def _is_idle(self) -> bool:
        return not (self.is_on or self._is_short)

    # -- watches --------------------------------------------------------------------------------

    def _tapped(self, resource: ApiResource, handler: Handler[Any]) -> Handler[Any]:
        if resource == PODS:
            return Tap(handler, self._pod_changed)
        if resource == NODES:
            return Tap(handler, self._node_changed)
        for kind in self._scheduler.listers.required():
            if kind.resource == resource and not is_left_out(kind):
                return Tap(handler, self._note_of(kind))
        return handler

    def _note_of(self, kind: WatchedKind[Any]) -> Callable[[Any, Any], None]:
        def changed(old: Any, new: Any) -> None:
            if not self._is_idle:
                self._put(ObjectItem(kind, old if new is None else new, is_gone=new is None))

        return changed

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if self._is_idle or (old is not None and new is not None and is_same_node(old, new)):
            return
        self._put(ObjectItem(watched_kind(Node), old if new is None else new, is_gone=new is None))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Note changes of pending pods; of the others the cache reports them."""
        if self._is_idle:
            return
        if new is not None and not new.spec.node_name:
            info = self._pending.get(new.metadata.uid)
            if info is None:
                self._gone(old)
            elif old is None or old.metadata.uid != info.uid or not is_same_pod(old, info.pod):
                self._gone(old if old is not None and old.metadata.uid != info.uid else None)
                self._put(PodItem(info))
        elif new is None:
            self._gone(old)

    def _gone(self, old: Pod | None) -> None:
        if old is not None and not old.spec.node_name:
            self._put(Gone(uid=old.metadata.uid))

    # -- the cache ------------------------------------------------------------------------------

    def placed(self, pod: PodInfo, *, is_assumed: bool) -> None:
        """Called by the cache, when it has assumed a pod and before it adds one."""
        if self._is_idle:
            return
        if is_assumed:
            if pod.uid == self._deciding:
                self._chosen = pod.node_name
            else:
                self._put(Assumed(uid=pod.uid, node=pod.node_name))
            return
        known = self._cache.get_pod(pod.uid)
        if known is None or not (
            known.node_name == pod.node_name and is_same_pod(known.pod, pod.pod)
        ):
            self._put(PodItem(pod))
        elif self._cache.is_assumed(pod.uid):
            self._put(Bound(uid=pod.uid))

    def displaced(self, uid: str) -> None:
        if not self._is_idle and uid != self._deciding:
            self._put(Off(uid=uid))

    # -- the cycle ------------------------------------------------------------------------------

    def began(self, queued: QueuedPodInfo, profile: Profile) -> None:
        """Called when the snapshot is what the decision will be made on."""
        if self._is_idle:
            return
        self._deciding = ""
        if not self._nominations.is_current:
            self._note_nominations()
        self._note_overlays()
        self._deciding, self._is_marked = queued.uid, False
        self._start, self._chosen = profile.next_start_node_index, ""

    def ended(self, outcome: Placed | Rejected) -> None:
        """Called with the decision."""
        queued, uid = outcome.queued, self._deciding
        if uid != queued.uid:
            return
        # What came in between is marked; this is its end.
        self._deciding = ""
        if self._scheduler.groups.of(uid) is not None:
            self._decided_alone.add(uid)
        about = (self._scheduler.clock.wall(), queued.key, uid, outcome.profile.name)
        if isinstance(outcome, Placed):
            sizes = outcome.evaluated_nodes, outcome.feasible_nodes
            self._put(Decided(*about, outcome.node_name, self._start, *sizes))
            if self._cache.get_pod(uid) is None:
                self._put(Off(uid=uid))
            return
        diagnosis, plugin = outcome.diagnosis, outcome.status.plugin
        plugins = diagnosis.unschedulable_plugins if diagnosis else {plugin} if plugin else ()
        self._put(
            Decided(
                *about,
                self._chosen,
                self._start,
                message=outcome.message,
                nominated=outcome.nominated_node_name or "",
                plugins=sorted(plugins),
            )
        )

    def _observed(self, decision: Decision) -> None:
        """Note decisions that were not made in a cycle of their own."""
        if decision.uid in self._decided_alone:
            self._decided_alone.discard(decision.uid)
        elif not self._is_idle and self._scheduler.groups.of(decision.uid) is not None:
            self._put(Together(at=decision.at, pod=decision.pod, uid=decision.uid))

    def _note_nominations(self) -> None:
        nominator = self._scheduler.nominator
        changed = self._nominations.changes()
        nodes = {*self._nominated, *nominator.by_node()} if changed is None else set(changed)
        for node in sorted(nodes):
            uids = [pod.uid for pod in nominator.nominated_pods_for_node(node)]
            if uids or node in self._nominated:
                self._put(Nominated(node=node, uids=uids))
            (self._nominated.add if uids else self._nominated.discard)(node)
        self._nominations.advance()

    def _note_overlays(self) -> None:
        """Note what of claims and volumes is not as it was watched."""
        if self._claims is not None:
            in_flight = self._changes("in flight", self._claims.in_flight)
            assumed = self._changes("assumed", self._claims.assumed)
            if in_flight or assumed:
                self._put(ClaimsItem(in_flight, assumed))
        if self._volumes is not None:
            volumes = self._changes("volumes", self._volumes.volumes.assumed)
            claims = self._changes("claims", self._volumes.claims.assumed)
            if volumes or claims:
                self._put(VolumesItem(volumes, claims))

    def _changes(self, name: str, now: Mapping[str, Any]) -> dict[str, Any]:
        before = self._overlays.get(name)
        if not before and not now:
            return {}
        known = before or {}
        changes = {key: obj for key, obj in now.items() if known.get(key) is not obj}
        changes.update(dict.fromkeys(key for key in known if key not in now))
        self._overlays[name] = dict(now)
        return changes
