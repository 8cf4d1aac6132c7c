"""A barrier before Bind for the members of a group that were placed together.

If Permit or PreBind of a member fails, the others must not be bound without it. So none is bound
before all are ready; if so many fail that the group's need is not met, all placements are undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.framework.status import SUCCESS, Code, Status
from ksched.groups.sentences import GROUP_UNSCHEDULABLE


class QuorumGate:
    """Opens when all members of a decision are ready; ``opened`` is called then."""

    __slots__ = ("_decided", "_missing", "_need", "_opened", "_ready", "_status", "_waiting")

    def __init__(
        self, need: int, uids: Iterable[str], waiting: WaitingPods, opened: Callable[[], None]
    ) -> None:
        self._missing = set(uids)
        self._ready: set[str] = set()
        self._need = need
        self._waiting = waiting
        self._opened = opened
        self._decided = asyncio.Event()
        self._status = SUCCESS

    @property
    def is_open(self) -> bool:
        return self._decided.is_set() and self._status.is_success

    async def passed(self, uid: str) -> Status:
        """Wait for the others; returns a success, or why all placements are undone."""
        if not self._decided.is_set():
            self._missing.discard(uid)
            self._ready.add(uid)
            if not self._missing:
                self._open()
            await self._decided.wait()
        return self._status

    def leave(self, uid: str, status: Status) -> None:
        """Record that a member failed; before the gate opens, too few others may be left."""
        if self._decided.is_set():
            return
        self._missing.discard(uid)
        self._ready.discard(uid)
        if len(self._missing) + len(self._ready) < self._need:
            self._close(status)
        elif not self._missing:
            self._open()

    def _open(self) -> None:
        self._decided.set()
        self._opened()

    def _close(self, status: Status) -> None:
        """Reject all members, including those that still wait at Permit."""
        code = status.code if status.is_rejected else Code.ERROR
        reasons = (f"{GROUP_UNSCHEDULABLE}, {status.message}",)
        self._status = Status(code, reasons, status.plugin)
        self._decided.set()
        for uid in list(self._missing):
            held = self._waiting.get(uid)
            if held is not None:
                held.settle(self._status)
