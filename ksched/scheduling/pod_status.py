"""Writes the outcome of attempts to the API server: the PodScheduled condition and the nomination.

Patches never delay a cycle. The latest desired status per pod is queued for a worker, so a pod that
fails a hundred times during an outage is patched once; a patch without effect is not sent. A
nomination of a pod that is being bound is as much work for the server as the bind: while it is
busy, these wait, ``PATIENCE_SECONDS`` at most, and are not sent if the pod is bound meanwhile. What
a bind within ``HOLD_SECONDS`` would make pointless waits for it in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ksched.api.objects import ObjectMeta, Pod, PodSpec, PodStatus
from ksched.cache.pod_info import PodInfo
from ksched.clock import Clock, rfc3339
from ksched.errors import ApiError, NotFound
from ksched.framework.runtime.deadlines import Deadlines
from ksched.unexpected_errors import UnexpectedErrors

log = logging.getLogger(__name__)

WORKERS = 4
POD_SCHEDULED = "PodScheduled"
NOMINATIONS_REMEMBERED = 4
"""Per pod; the watch lags behind what was sent."""
HOLD_SECONDS = 3.0
"""Enough for most bindings, and for the first backoff."""
PATIENCE_SECONDS = 10.0
"""How long a nomination waits at most for the API server to be less busy."""
GIVE_WAY_SECONDS = 0.1


class StatusClient(Protocol):
    async def patch_pod_status(self, namespace: str, name: str, body: bytes) -> bytes:
        """Apply a strategic merge patch and return the pod as stored; raises ``ApiError``."""
        ...


class DesiredStatus(Struct, frozen=True):
    """The desired status of a pod. An empty reason leaves the condition unchanged."""

    reason: str = ""
    message: str = ""
    nominated_node_name: str | None = None

    def after(self, earlier: DesiredStatus | None) -> DesiredStatus:
        """Return the status that results from ``earlier``, then this."""
        if earlier is None:
            return self
        condition = self if self.reason else earlier
        nominated = self.nominated_node_name
        if nominated is None:
            nominated = earlier.nominated_node_name
        return DesiredStatus(condition.reason, condition.message, nominated)


NOTHING = DesiredStatus()


class _Postponed(NamedTuple):
    pod: PodInfo
    desired: DesiredStatus
    until: float


class _Held(NamedTuple):
    pod: PodInfo
    desired: DesiredStatus
    announce: Callable[[], None]
    until: float
    """The latest end."""


class _Patch:
    __slots__ = ("queued_at", "reader")

    def __init__(self) -> None:
        self.queued_at = 0.0
        self.reader: asyncio.Future[bytes | None] | None = None
        """Who waits for the answer."""

    def answered(self, pod: bytes | None) -> None:
        if self.reader is not None:
            self.reader.set_result(pod)


class PodStatusUpdater:
    """Sends status patches with bounded concurrency; the only writer of pod status.

    kube-scheduler: APIDispatcher.
    """

    def __init__(
        self,
        client: StatusClient,
        clock: Clock,
        unexpected_errors: UnexpectedErrors,
        gives_way: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._clock = clock
        self._unexpected_errors = unexpected_errors
        self._gives_way = gives_way
        self._desired: dict[str, tuple[PodInfo, DesiredStatus]] = {}
        self._awaited: dict[str, None] = {}
        """Those of ``_desired`` whose answer is waited for: they are sent before the others."""
        self._postponed: dict[str, _Postponed] = {}
        """Not yet in ``_desired``, in the order of their time."""
        self._held: dict[str, _Held] = {}
        """Not yet in either."""
        self._holds: Deadlines[str] = Deadlines(HOLD_SECONDS, self._end_hold)
        self._sent: dict[str, DesiredStatus] = {}
        self._nominated: dict[str, tuple[str, ...]] = {}
        """The nominations sent last, newest first; "" for a removed one."""
        self._patches: dict[str, _Patch] = {}
        """The latest of each pod that is queued or on its way."""
        self._busy: set[str] = set()
        self._wake = asyncio.Event()
        self._wake_postponed = asyncio.Event()

    def set(self, pod: PodInfo, desired: DesiredStatus, *, can_wait: bool = False) -> None:
        """Queue a status update; replaces an older one not yet sent.

        One that ``can_wait`` is postponed while the API server is busy.
        """
        uid = pod.uid
        held = self._release(uid)
        if held is not None:
            if not desired.reason:
                held.announce()
            desired = desired.after(held.desired)
        postponed = self._postponed.get(uid)
        if uid in self._desired:
            desired = desired.after(self._desired[uid][1])
        elif postponed is not None:
            desired = desired.after(postponed.desired)
        elif self._sent.get(uid) == desired:
            return
        elif can_wait and self._gives_way():
            until = self._clock.now() + PATIENCE_SECONDS
            self._postponed[uid] = _Postponed(pod, desired, until)
            self._wake_postponed.set()
            return
        self._postponed.pop(uid, None)
        self._queue(pod, desired)

    def _queue(self, pod: PodInfo, desired: DesiredStatus) -> None:
        patch = self._patches[pod.uid] if pod.uid in self._desired else _Patch()
        patch.queued_at = self._clock.now()
        self._patches[pod.uid] = patch
        self._desired[pod.uid] = (pod, desired)
        self._wake.set()

    def set_unless_bound_soon(
        self, pod: PodInfo, desired: DesiredStatus, announce: Callable[[], None] = lambda: None
    ) -> None:
        """Queue a status update in ``HOLD_SECONDS``, together with the next one if that is earlier.

        While the API server is busy then, it is held longer, ``PATIENCE_SECONDS`` at most.
        ``announce`` is called when it is queued, but not if another rejection has replaced it.
        """
        uid = pod.uid
        held = self._held.get(uid)
        if held is not None:
            announce = announce if desired.reason else held.announce
            self._held[uid] = _Held(pod, desired.after(held.desired), announce, held.until)
        elif uid in self._desired or uid in self._postponed:
            announce()
            self.set(pod, desired, can_wait=True)
        else:
            until = self._clock.now() + PATIENCE_SECONDS
            self._held[uid] = _Held(pod, desired, announce, until)
            self._holds.add(uid)

    def _end_hold(self, uid: str) -> None:
        held = self._held[uid]
        if self._gives_way() and self._clock.now() + HOLD_SECONDS <= held.until:
            self._holds.add(uid)
            return
        del self._held[uid]
        held.announce()
        self.set(held.pod, held.desired)

    def _release(self, uid: str) -> _Held | None:
        self._holds.remove(uid)
        return self._held.pop(uid, None)

    def is_own_update(self, old: Pod, new: Pod) -> bool:
        """Whether two versions of a pending pod differ only by our own patches.

        The PodScheduled condition is always ours; a nomination is if it was sent from here, since
        other clients nominate too. Any further difference makes the update foreign.
        """
        after = new.status
        if _without_ours(old) != _without_ours(new) or old.status == after:
            return False
        nominated = after.nominated_node_name
        return nominated == old.status.nominated_node_name or nominated in self._nominated.get(
            new.metadata.uid, ()
        )

    def forget(self, uid: str) -> None:
        """Drop the state of a pod that is gone or bound."""
        self._nominated.pop(uid, None)
        if uid in self._held:
            self._release(uid)
        if self._desired.pop(uid, None) is not None:
            self._awaited.pop(uid, None)
            self._patches.pop(uid).answered(None)
        self._postponed.pop(uid, None)
        self._sent.pop(uid, None)

    def forget_sent(self) -> None:
        """Assume that nothing was sent: the API server may have lost earlier patches."""
        self._sent.clear()

    async def answer(self, uid: str, since: float) -> bytes | None:
        """Return a pod as the API server answers to a patch that was queued ``since`` then.

        ``None`` if there is none that is not answered yet, or if it fails.
        """
        patch = self._patches.get(uid)
        if patch is None or patch.queued_at < since:
            return None
        if patch.reader is None:
            patch.reader = asyncio.get_running_loop().create_future()
            if uid in self._desired:
                self._awaited[uid] = None
        return await asyncio.shield(patch.reader)

    def __len__(self) -> int:
        return len(self._held) + len(self._desired) + len(self._postponed) + len(self._busy)

    async def run(self) -> None:
        """Send patches until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for number in range(WORKERS):
                workers.create_task(self._work(), name=f"pod status {number}")
            workers.create_task(self._end_postponements(), name="postponed pod status")

    async def _end_postponements(self) -> None:
        while True:
            while not self._postponed:
                self._wake_postponed.clear()
                await self._wake_postponed.wait()
            if self._gives_way() and self._clock.now() < next(iter(self._postponed.values())).until:
                await self._clock.sleep(GIVE_WAY_SECONDS)
                continue
            uid = next(iter(self._postponed))
            pod, desired, _ = self._postponed.pop(uid)
            self._queue(pod, desired)
            del pod, desired

    async def _work(self) -> None:
        while True:
            queued = chain(self._awaited, self._desired)
            uid = next((uid for uid in queued if uid not in self._busy), None)
            if uid is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            pod, desired = self._desired.pop(uid)
            self._awaited.pop(uid, None)
            patch, stored = self._patches[uid], None
            # One patch per pod at a time: of two in flight, the older might arrive last.
            self._busy.add(uid)
            try:
                with self._unexpected_errors.contain("status update", pod):
                    stored = await self._send(pod, desired)
            finally:
                patch.answered(stored)
                if self._patches.get(uid) is patch:
                    del self._patches[uid]
                # A worker that waits for the next pod must not keep this one in memory.
                del pod, desired, patch, stored
                self._busy.discard(uid)
                self._wake.set()

    def _remember_nomination(self, pod: PodInfo, desired: DesiredStatus) -> None:
        if desired.nominated_node_name is not None:
            known = self._nominated.get(pod.uid, ())
            self._nominated[pod.uid] = (desired.nominated_node_name, *known)[
                :NOMINATIONS_REMEMBERED
            ]

    async def _send(self, pod: PodInfo, desired: DesiredStatus) -> bytes | None:
        """Returns the pod as it is then, if anything was sent."""
        earlier = self._sent.get(pod.uid)
        self._sent[pod.uid] = desired.after(earlier)
        delivered, stored = False, None
        try:
            body = patch_body(pod, desired, earlier or NOTHING, self._clock.wall())
            if body is not None:
                self._remember_nomination(pod, desired)
                stored = await self._client.patch_pod_status(pod.namespace, pod.name, body)
            delivered = True
        except NotFound:
            log.debug("pod is gone, status not updated", extra={"pod": pod.key})
        except ApiError as error:
            log.warning("pod status not updated", extra={"pod": pod.key, "err": str(error)})
        finally:
            if not delivered:
                # The next failed attempt queues it again.
                self._sent.pop(pod.uid, None)
        return stored


def _without_ours(pod: Pod) -> tuple[ObjectMeta, PodSpec, PodStatus]:
    """The parts of a pending pod that other clients write."""
    conditions = [one for one in pod.status.conditions if one.type != POD_SCHEDULED]
    return (
        replace(pod.metadata, resource_version=""),
        pod.spec,
        replace(pod.status, conditions=conditions, nominated_node_name=""),
    )


def patch_body(
    pod: PodInfo, desired: DesiredStatus, sent: DesiredStatus, wall_seconds: float
) -> bytes | None:
    """Build the strategic merge patch for a desired status; ``None`` if nothing changes.

    The pod object may be older than the status ``sent`` last; the patch is omitted only if it has
    no effect on either.
    """
    status = pod.pod.status
    body: dict[str, object] = {}
    if desired.reason:
        current = next((one for one in status.conditions if one.type == POD_SCHEDULED), None)
        is_false = current is not None and current.status == "False"
        wanted = (desired.reason, desired.message)
        is_said = is_false and current is not None and (current.reason, current.message) == wanted
        if not is_said or (sent.reason and (sent.reason, sent.message) != wanted):
            condition: dict[str, object] = {
                "type": POD_SCHEDULED,
                "status": "False",
                "reason": desired.reason,
                "message": desired.message,
            }
            if not is_false:
                condition["lastTransitionTime"] = rfc3339(wall_seconds)
            if pod.pod.metadata.generation:
                condition["observedGeneration"] = pod.pod.metadata.generation
            body["conditions"] = [condition]
    nominated = desired.nominated_node_name
    if nominated is not None and not (
        nominated == status.nominated_node_name and sent.nominated_node_name in (None, nominated)
    ):
        body["nominatedNodeName"] = nominated or None
    return msgspec.json.encode({"status": body}) if body else None
