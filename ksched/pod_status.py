"""Tells the API server what became of an attempt: the PodScheduled condition and the nomination.

Patches never hold up a cycle. The latest wish per pod waits for a worker, so a pod that fails a
hundred times during an outage is patched once; a wish that changes nothing is not sent.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import msgspec
from msgspec import Struct

from ksched.cache.pod_info import PodInfo
from ksched.clock import Clock, rfc3339
from ksched.errors import ApiError, NotFound

log = logging.getLogger(__name__)

WORKERS = 4


class StatusClient(Protocol):
    async def patch_pod_status(self, namespace: str, name: str, body: bytes) -> None:
        """Apply a strategic merge patch; raises ``ApiError``."""
        ...


class Wish(Struct, frozen=True):
    """What a pod's status should say. An empty reason leaves the condition alone."""

    reason: str = ""
    message: str = ""
    nominated_node_name: str | None = None


class PodStatusUpdater:
    """Sends status patches, a few at a time; the single writer of what ksched says about pods."""

    def __init__(self, client: StatusClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._wishes: dict[str, tuple[PodInfo, Wish]] = {}
        self._sent: dict[str, Wish] = {}
        self._wake = asyncio.Event()

    def set(self, pod: PodInfo, wish: Wish) -> None:
        """Ask for a pod's status to become ``wish``; replaces an older wish not yet sent."""
        if self._sent.get(pod.uid) == wish and pod.uid not in self._wishes:
            return
        self._wishes[pod.uid] = (pod, wish)
        self._wake.set()

    def forget(self, uid: str) -> None:
        """Drop what is known of a pod that is gone or bound."""
        self._wishes.pop(uid, None)
        self._sent.pop(uid, None)

    def __len__(self) -> int:
        return len(self._wishes)

    async def run(self) -> None:
        """Send wishes until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for number in range(WORKERS):
                workers.create_task(self._work(), name=f"pod status {number}")

    async def _work(self) -> None:
        while True:
            while not self._wishes:
                self._wake.clear()
                await self._wake.wait()
            uid = next(iter(self._wishes))
            pod, wish = self._wishes.pop(uid)
            body = patch_body(pod, wish, self._clock.wall())
            if body is None:
                self._sent[uid] = wish
                continue
            self._sent[uid] = wish
            try:
                await self._client.patch_pod_status(pod.namespace, pod.name, body)
            except NotFound:
                self._sent.pop(uid, None)
            except ApiError as error:
                # The next failed attempt wishes again.
                self._sent.pop(uid, None)
                log.warning("pod status not updated", extra={"pod": pod.key, "error": str(error)})


def patch_body(pod: PodInfo, wish: Wish, wall_seconds: float) -> bytes | None:
    """The strategic merge patch that makes a wish true; ``None`` if it is true already."""
    status = pod.pod.status
    body: dict[str, object] = {}
    if wish.reason:
        current = next((one for one in status.conditions if one.type == "PodScheduled"), None)
        condition: dict[str, object] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": wish.reason,
            "message": wish.message,
        }
        if current is None or current.status != "False":
            condition["lastTransitionTime"] = rfc3339(wall_seconds)
        if pod.pod.metadata.generation:
            condition["observedGeneration"] = pod.pod.metadata.generation
        same = current is not None and (current.status, current.reason, current.message) == (
            "False",
            wish.reason,
            wish.message,
        )
        if not same:
            body["conditions"] = [condition]
    nominated = wish.nominated_node_name
    if nominated is not None and nominated != status.nominated_node_name:
        body["nominatedNodeName"] = nominated or None
    return msgspec.json.encode({"status": body}) if body else None
