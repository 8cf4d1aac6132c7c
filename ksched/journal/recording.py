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
from ksched.cache.change_log import NEVER
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
from ksched.journal.whole_state import state_of
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


class PodTap(Tap[Pod]):
    """The same for pods, without changes of those that have a node: the cache reports them."""

    def added(self, obj: Pod) -> None:
        try:
            self._handler.added(obj)
        finally:
            if not obj.spec.node_name:
                self._note(None, obj)

    def modified(self, old: Pod, new: Pod) -> None:
        try:
            self._handler.modified(old, new)
        finally:
            if not new.spec.node_name:
                self._note(old, new)


class Placements:
    """Passes what the cache reports to the recording, and to who listened before."""

    def __init__(self, recording: Recording, other: PlacementListener) -> None:
        self._recording, self._other = recording, other

    def placed(self, pod: PodInfo, *, is_assumed: bool) -> None:
        self._other.placed(pod, is_assumed=is_assumed)
        self._recording.placed(pod, is_assumed=is_assumed)

    def displaced(self, uid: str) -> None:
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
        self._groups, self._clock = scheduler.groups, scheduler.clock
        self.waiting: deque[Item | NewFile] = deque()
        self.is_on = False
        self.dropped = 0
        """Records that found no room."""
        self._is_short, self._is_idle = False, True
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
        self._claims_at, self._has_volumes = NEVER, False
        scheduler.watches.tap(self._tapped)
        other = self._cache.listener
        self._cache.listener = self if other is None else Placements(self, other)
        scheduler.cycle.observer = self
        scheduler.decisions.observe(self._observed)

    # -- on and off -----------------------------------------------------------------------------

    def start(self) -> Iterator[Item] | None:
        """Record from now on; returns the whole state as it is. ``None`` during a cycle."""
        return None if self._scheduler.cycle.is_running else self.start_over()

    def start_over(self) -> Iterator[Item]:
        """As ``start``, by the one that holds up all cycles."""
        self.is_on, self._is_short, self._is_idle = True, False, False
        self._deciding = ""
        self._nominations.start_over()
        self._nominated.clear()
        self._overlays.clear()
        self._claims_at, self._has_volumes = NEVER, False
        return state_of(self._scheduler, is_left_out)

    def stop(self) -> None:
        """Drop what is not written, and record nothing more until ``start``."""
        self.is_on, self._is_idle = False, not self._is_short
        self.dropped += len(self.waiting)
        self.waiting.clear()

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

    # -- watches --------------------------------------------------------------------------------

    def _tapped(self, resource: ApiResource, handler: Handler[Any]) -> Handler[Any]:
        if resource == PODS:
            return PodTap(handler, self._pod_changed)
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
            elif old is None or old.metadata.uid != info.uid:
                self._gone(old)
                self._put(info)
            elif not (_has_same_template(old, info.pod) and is_same_pod(old, info.pod)):
                self._put(info)
        elif new is None:
            self._gone(old)

    def _gone(self, old: Pod | None) -> None:
        if old is not None and not old.spec.node_name:
            self._put(Gone(old.metadata.uid))

    # -- the cache ------------------------------------------------------------------------------

    def placed(self, pod: PodInfo, *, is_assumed: bool) -> None:
        """Called by the cache, when it has assumed a pod and before it adds one."""
        if self._is_idle:
            return
        uid = pod.uid
        if is_assumed:
            if uid == self._deciding:
                self._chosen = pod.node_name
            else:
                self._put(Assumed(uid, pod.node_name))
            return
        known = self._cache.get_pod(uid)
        if (
            known is None
            or known.template is not pod.template
            or known.node_name != pod.node_name
            or not is_same_pod(known.pod, pod.pod)
        ):
            self._put(pod)
        elif self._cache.is_assumed(uid):
            self._put(Bound(uid))

    def displaced(self, uid: str) -> None:
        if not self._is_idle and uid != self._deciding:
            self._put(Off(uid))

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
        if self._groups.is_on and self._groups.of(uid) is not None:
            self._decided_alone.add(uid)
        about = (self._clock.wall(), queued.key, uid, outcome.profile.name)
        if isinstance(outcome, Placed):
            sizes = outcome.evaluated_nodes, outcome.feasible_nodes
            self._put(Decided(*about, outcome.node_name, self._start, *sizes))
            if self._cache.get_pod(uid) is None:
                self._put(Off(uid))
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
        if not self._groups.is_on:
            return
        if decision.uid in self._decided_alone:
            self._decided_alone.discard(decision.uid)
        elif not self._is_idle and self._groups.of(decision.uid) is not None:
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
        claims, volumes = self._claims, self._volumes
        if claims is not None and claims.generation != self._claims_at:
            self._claims_at = claims.generation
            in_flight = self._changes("in flight", claims.in_flight)
            assumed = self._changes("assumed", claims.assumed)
            if in_flight or assumed:
                self._put(ClaimsItem(in_flight, assumed))
        if volumes is None:
            return
        now = volumes.volumes.assumed, volumes.claims.assumed
        if now[0] or now[1] or self._has_volumes:
            self._has_volumes = bool(now[0] or now[1])
            changes = self._changes("volumes", now[0]), self._changes("claims", now[1])
            if any(changes):
                self._put(VolumesItem(*changes))

    def _changes(self, name: str, now: Mapping[str, Any]) -> dict[str, Any]:
        known = self._overlays.get(name, {})
        changes = {key: obj for key, obj in now.items() if known.get(key) is not obj}
        changes.update(dict.fromkeys(key for key in known if key not in now))
        self._overlays[name] = dict(now)
        return changes


def _has_same_template(old: Pod, new: Pod) -> bool:
    """Whether two versions of a pod that the cache knows share what equal pods share."""
    return old.spec is new.spec and old.metadata.labels is new.metadata.labels
