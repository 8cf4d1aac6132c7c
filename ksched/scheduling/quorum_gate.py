"""A barrier before Bind for the members of a group that were placed together.

If Permit or PreBind of a member fails, the others must not be bound without it. So none is bound
before all are ready; if so many fail that the group's need is not met, all placements are undone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from ksched.framework.runtime.waiting_pods import WaitingPods
from ksched.framework.status import SUCCESS, Code, Status
from ksched.groups.sentences import GROUP_UNSCHEDULABLE
from ksched.tuning import MEMBERS_PER_STEP


class QuorumGate:
    """Opens when all members of a decision are ready; ``opened`` is called then.

    Members pass a few at a time, so that thousands do not occupy the event loop at once.
    """

    __slots__ = (
        "_is_decided",
        "_missing",
        "_need",
        "_opened",
        "_queue",
        "_ready",
        "_status",
        "_waiting",
    )

    def __init__(self, need: int, waiting: WaitingPods, opened: Callable[[], None]) -> None:
        self._missing: set[str] = set()
        self._ready: set[str] = set()
        self._need = need
        self._waiting = waiting
        self._opened = opened
        self._is_decided = False
        self._queue: deque[asyncio.Future[None]] = deque()
        self._status = SUCCESS

    @property
    def is_open(self) -> bool:
        return self._is_decided and self._status.is_success

    def expect(self, uids: Iterable[str]) -> None:
        """Set the members of the decision, before the first one comes."""
        self._missing = set(uids)

    async def passed(self, uid: str) -> Status:
        """Wait for the others; returns a success, or why all placements are undone."""
        if not self._is_decided:
            self._missing.discard(uid)
            self._ready.add(uid)
            if not self._missing:
                self._open()
            turn = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            await turn
        return self._status

    def leave(self, uid: str, status: Status) -> None:
        """Record that a member failed; before the gate opens, too few others may be left."""
        if self._is_decided:
            return
        self._missing.discard(uid)
        self._ready.discard(uid)
        if len(self._missing) + len(self._ready) < self._need:
            self._close(status)
        elif not self._missing:
            self._open()

    def _open(self) -> None:
        self._decide()
        self._opened()

    def _close(self, status: Status) -> None:
        """Reject all members, including those that still wait at Permit."""
        code = status.code if status.is_rejected else Code.ERROR
        reasons = (f"{GROUP_UNSCHEDULABLE}, {status.message}",)
        self._status = Status(code, reasons, status.plugin)
        self._decide()
        for uid in list(self._missing):
            held = self._waiting.get(uid)
            if held is not None:
                held.settle(self._status)

    def _decide(self) -> None:
        self._is_decided = True
        asyncio.get_running_loop().call_soon(self._let_pass)

    def _let_pass(self) -> None:
        for _ in range(min(len(self._queue), MEMBERS_PER_STEP)):
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
        if self._queue:
            asyncio.get_running_loop().call_soon(self._let_pass)
