"""The body of a response as it arrives: what a watch reads."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

_MOST_UNREAD: Final = 2 << 20


class Source(Protocol):
    """The connection that a body arrives on."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def drop(self, cause: str) -> None: ...


class StreamBody:
    """Pieces of a body, for one reader. What is not read holds back the server.

    ``idle_seconds`` without any data end it.
    """

    def __init__(self, idle_seconds: float) -> None:
        self.idle_seconds = idle_seconds
        self.source: Source | None = None
        self._pieces: list[bytes] = []
        self._unread = 0
        self._is_paused = False
        self._has_ended = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """Return everything that has arrived, at least a byte; nothing after a proper end.

        Raises the error that ended the body when all before it was read.
        """
        pieces = self._pieces
        while not pieces and not self._has_ended:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
            pieces = self._pieces
        if not pieces and self._error is not None:
            raise self._error
        self._pieces, self._unread = [], 0
        if self._is_paused and self.source is not None:
            self._is_paused = False
            self.source.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Stop reading; a body that has not ended ends its connection."""
        if not self._has_ended and self.source is not None:
            self.source.drop("no longer read")

    # -- called by the connection ---------------------------------------------------------------

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._unread += len(piece)
        if self._unread > _MOST_UNREAD and not self._is_paused and self.source is not None:
            self._is_paused = True
            self.source.pause()
        self._wake()

    def end(self, error: Exception | None = None) -> None:
        self._has_ended, self._error = True, error
        source, self.source = self.source, None
        if self._is_paused and source is not None:
            # The connection may be used again.
            source.resume()
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
