"""The wire as one small interface: HTTP over a socket, or a call into the embedded API server.

Does not belong here: an implementation. ``ksched.client`` speaks HTTP, ``ksched.apiserver`` runs
in process, and everything above them cannot distinguish the two.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

NOT_SENT = "NotSent"
"""The ``reason`` of an ``Unavailable`` whose request cannot have reached the server.

With any other reason and code 0 the request may have taken effect.
"""


SILENT = "Silent"
"""The ``reason`` of an ``Unavailable`` for a watch that was idle for too long."""


class Response(NamedTuple):
    """A complete response with any status; only a lost connection is an exception."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class StreamResponse(NamedTuple):
    """A response whose body arrives line by line (a watch).

    With a status other than 200 ``lines`` yields the error body. The iterator ends when the server
    closes the stream properly and raises ``Unavailable`` when the connection breaks.
    """

    status: int
    headers: Mapping[str, str]
    lines: AsyncIterator[bytes]


class Transport(Protocol):
    """Access to one API server. ``path`` starts with a slash and includes the query."""

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Response:
        """Send one request and return the complete response.

        Raises ``Unavailable`` when there is none within ``timeout`` seconds.
        """
        ...

    def stream(
        self, path: str, *, idle_timeout: float | None = None
    ) -> AbstractAsyncContextManager[StreamResponse]:
        """Open a watch. No data for ``idle_timeout`` seconds is an error with reason ``SILENT``."""
        ...

    async def aclose(self) -> None: ...


Guard = Callable[[Transport], Transport]
"""Wraps a transport, for example to let only a leader write."""
