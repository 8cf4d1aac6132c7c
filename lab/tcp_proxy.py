"""A network cable that a test can pull: a TCP proxy on loopback in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
_CHUNK_BYTES = 1 << 16


class TcpProxy:
    """Passes connections on to a port of this machine until ``cut``.

    While cut it swallows every byte in both directions and tells nobody, as a router that drops
    packets does. ``heal`` resets the connections that suffered. ``source`` is the address from
    which the other side sees the connections come, any of 127.0.0.0/8 on Linux.
    """

    def __init__(self, target_port: int, source: str = HOST) -> None:
        self.source, self._target_port = source, target_port
        self._is_cut = False
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, HOST, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    def cut(self) -> None:
        self._is_cut = True

    def heal(self) -> None:
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._reset)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _shut_down(self) -> None:
        self._server.close()
        self._reset()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _reset(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if self._is_cut:
                await self._pump(reader, None)
                return
            upstream_reader, upstream = await asyncio.open_connection(
                HOST, self._target_port, local_addr=(self.source, 0)
            )
            self._open.add(upstream)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._pump(reader, upstream))
                    tasks.create_task(self._pump(upstream_reader, writer))
            finally:
                self._open.discard(upstream)
                upstream.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass  # either side ended, or the test did
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter | None
    ) -> None:
        """Pass bytes on until the end of the stream; then end the other direction too."""
        try:
            while data := await reader.read(_CHUNK_BYTES):
                if writer is not None and not self._is_cut:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        if writer is not None:
            writer.close()
