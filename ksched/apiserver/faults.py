"""Things that go wrong between a client and the server, on purpose and repeatably.

Rules are tried in order; the first that applies to a request decides. Chances come from a seeded
generator, so that a run can be repeated from its seed.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum

import msgspec

from ksched.apiserver.object_store import watch_line
from ksched.apiserver.request import Request, verb_and_resource
from ksched.apiserver.served_resources import ServedResources
from ksched.apiserver.status_errors import StatusError, expired
from ksched.errors import Unavailable

_FIRED_LENGTH = 10_000


class StreamEnd(Enum):
    """How a faulty watch ends."""

    CLOSED = "closed"
    """In good order, as when the server's time-out has come."""
    RESET = "reset"
    """The connection breaks."""
    EXPIRED = "expired"
    """A 410 inside the stream."""
    SILENT = "silent"
    """Half open: no further data, and no error."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong. The fields may be combined; the default is nothing."""

    delay_seconds: float = 0.0
    """The request is performed this much later."""
    answer: StatusError | None = None
    """The request is refused instead of performed."""
    hang: bool = False
    """The request is lost; no response comes."""
    lose_response: bool = False
    """The request is performed, then the connection breaks."""
    stream_end: StreamEnd | None = None
    """A watch ends early, after ``stream_events`` events or ``stream_seconds``."""
    stream_events: int | None = None
    stream_seconds: float | None = None
    event_delay_seconds: float = 0.0
    """Every event of a watch comes this much later."""
    duplicate_events: bool = False
    """Every event of a watch comes twice."""


@dataclass
class Rule:
    """When a fault happens."""

    fault: Fault
    verb: str = ""
    """get, list, watch, create, update, patch, delete or deletecollection; empty for any."""
    resource: str = ""
    """Plural name with subresource, say ``pods/binding``; empty for any."""
    user: str = ""
    when: Callable[[Request], bool] | None = None
    skip: int = 0
    """Let this many matching requests pass first."""
    times: int | None = 1
    """Happen this often; ``None`` for ever."""
    chance: float = 1.0

    def applies(self, request: Request, verb: str, resource: str) -> bool:
        """Whether it is about a request, whose verb and resource are given."""
        return (
            (not self.verb or self.verb == verb)
            and (not self.resource or self.resource == resource)
            and (not self.user or self.user == request.user)
            and (self.when is None or self.when(request))
        )


class Faults:
    """A list of rules, consulted once for every request."""

    def __init__(self, rules: Iterable[Rule] = (), seed: int = 0) -> None:
        self.rules = list(rules)
        self.fired: deque[tuple[Request, Fault]] = deque(maxlen=_FIRED_LENGTH)
        self._random = random.Random(seed)

    def choose(self, request: Request, resources: ServedResources) -> Fault | None:
        """Return what goes wrong with this request, and count it."""
        if not self.rules:
            return None
        verb, resource = verb_and_resource(request, resources)
        for rule in self.rules:
            if rule.times == 0 or not rule.applies(request, verb, resource):
                continue
            if rule.skip > 0:
                rule.skip -= 1
                continue
            if rule.chance < 1.0 and self._random.random() >= rule.chance:
                continue
            if rule.times is not None:
                rule.times -= 1
            self.fired.append((request, rule.fault))
            return rule.fault
        return None


def connection_reset(request: Request) -> Unavailable:
    """The error of a connection that broke."""
    return Unavailable(0, "", f"{request.method} {request.path}: connection reset by peer")


async def faulty_lines(
    lines: AsyncIterator[bytes], fault: Fault, request: Request
) -> AsyncIterator[bytes]:
    """Read a watch through a fault."""
    seen, loop = 0, asyncio.get_running_loop()
    deadline = None if fault.stream_seconds is None else loop.time() + fault.stream_seconds
    while fault.stream_events is None or seen < fault.stream_events:
        try:
            async with nullcontext() if deadline is None else asyncio.timeout_at(deadline):
                line = await anext(lines, None)
        except TimeoutError:
            break
        if line is None:
            return
        if fault.event_delay_seconds:
            await asyncio.sleep(fault.event_delay_seconds)
        yield line
        if fault.duplicate_events:
            yield line
        seen += 1
    if fault.stream_end is StreamEnd.EXPIRED:
        error = expired("too old resource version: 1 (2)")
        yield watch_line("ERROR", msgspec.json.encode(error.status()))
    elif fault.stream_end is StreamEnd.RESET:
        raise connection_reset(request)
    elif fault.stream_end is StreamEnd.SILENT:
        await asyncio.Event().wait()
