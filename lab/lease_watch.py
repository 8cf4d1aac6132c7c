"""Who held the lease when a replica sent a write, judged by what the API server stored.

A leader's fence promises that nothing is sent after the renew deadline, and another candidate waits
for the lease duration. So when a write is sent the lease is the sender's, and it still is when the
server performs the write, unless the network kept it for longer than the time between the two. Not
fenced are Events, and the lease itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

import msgspec

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.faults import Faults, connection_reset
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.request import Request, verb_and_resource
from ksched.apiserver.watching import Watch
from ksched.configuration.model import LeaderElection
from ksched.transport import Response

UNFENCED = ("events", "leases")
WINDOW_SECONDS = LeaderElection().lease_duration_seconds - LeaderElection().renew_deadline_seconds


class SentRequest(Request):
    """A request of a replica and when it was sent."""

    at: float
    is_given_up: bool
    """Nobody waits for the answer any more."""


class LeaseWatch:
    """Follows the lease of a server; ``complain`` is called with each violation.

    ``on_late_bind`` is called with the key of a pod whose bind the server performs now although its
    sender has given it up: the room may have been given away, which no fence prevents.
    """

    def __init__(
        self,
        server: ApiServer,
        complain: Callable[[str], None],
        on_late_bind: Callable[[str], None],
    ) -> None:
        self._on_late_bind = on_late_bind
        self.holder = ""
        """The replica whose name is in the lease as stored; empty after a release."""
        self._server, self._complain = server, complain
        handle = server.handle

        def watched(request: Request) -> Response | Watch:
            if isinstance(request, SentRequest) and request.is_given_up:
                self._note_late_bind(request)
            answer = handle(request)
            if isinstance(request, SentRequest):
                self._performed(request, answer)
            return answer

        server.handle = watched  # type: ignore[method-assign]

    def sent(self, request: SentRequest) -> None:
        """Judge a request that a replica sends now."""
        if self._is_fenced(request) and self.holder != request.user:
            self._complain(self._problem(request, "sent"))

    def _performed(self, request: SentRequest, answer: Response | Watch) -> None:
        if isinstance(answer, Watch) or request.method == "GET":
            return
        _, resource = verb_and_resource(request, self._server.resources)
        if resource == "leases":
            if answer.status < 300:
                spec: dict[str, Any] = msgspec.json.decode(answer.body)["spec"]
                self.holder = request.user if spec.get("holderIdentity") else ""
        elif (
            resource not in UNFENCED
            and self.holder != request.user
            and _now() - request.at <= WINDOW_SECONDS
        ):
            self._complain(self._problem(request, "performed"))

    def _note_late_bind(self, request: SentRequest) -> None:
        *_, namespace, _, name, subresource = request.path.split("/")
        if subresource == "binding":
            self._on_late_bind(f"{namespace}/{name}")

    def _is_fenced(self, request: Request) -> bool:
        if request.method == "GET":
            return False
        return verb_and_resource(request, self._server.resources)[1] not in UNFENCED

    def _problem(self, request: SentRequest, what: str) -> str:
        return (
            f"{request.user}: {request.method} {request.path}, sent at {request.at:g}, was {what} "
            f"at {_now():g} while the lease was with {self.holder or 'nobody'}"
        )


class Wire(InProcessTransport):
    """The network between one process and the server.

    What was sent is performed, whatever becomes of the process that sent it.
    """

    def __init__(self, server: ApiServer, user: str, faults: Faults, lease: LeaseWatch) -> None:
        super().__init__(server, user, faults)
        self._lease = lease
        self._under_way: set[asyncio.Task[Response]] = set()
        self._countdown = 0
        self._reached: asyncio.Future[None] | None = None
        self.is_cut = False
        """Nothing is sent any more: the process was killed."""

    def after_writes(self, number: int) -> asyncio.Future[None]:
        """Return a future that is done when so many further fenced writes were sent."""
        self._countdown = number
        self._reached = asyncio.get_running_loop().create_future()
        return self._reached

    async def _exchange(self, request: Request) -> Response:
        if self.is_cut:
            raise connection_reset(request)
        sent = SentRequest(*request)
        sent.at, sent.is_given_up = _now(), False
        self._lease.sent(sent)
        if sent.method != "GET":
            self._count_down()
        # A task of the network, not of the process: it goes on when that is frozen or killed.
        task = asyncio.get_running_loop().create_task(super()._exchange(sent), context=Context())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            sent.is_given_up = True
            raise

    def _count_down(self) -> None:
        self._countdown -= 1
        if self._reached is not None and not self._reached.done() and self._countdown <= 0:
            self._reached.set_result(None)


def _now() -> float:
    return asyncio.get_running_loop().time()
