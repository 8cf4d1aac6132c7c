"""The embedded server on a loopback socket, for kubectl and for schedulers in other processes.

There is no authentication: a bearer token is taken for the user's name, which only the request log
uses. Do not listen on anything but loopback.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from ksched.apiserver.api_server import ApiServer, failure
from ksched.apiserver.request import Request
from ksched.apiserver.status_errors import StatusError
from ksched.apiserver.watching import Watch
from ksched.transport import JSON, Response

LOOPBACK = "127.0.0.1"

_LARGEST_BODY_BYTES = 3 * 1024 * 1024
_KEEP_ALIVE_SECONDS = 600.0
_SHUTDOWN_SECONDS = 2.0


@asynccontextmanager
async def listening(
    server: ApiServer,
    port: int = 0,
    *,
    host: str = LOOPBACK,
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator[str]:
    """Serve while the block runs and give its URL; open watches end with it.

    Port 0 takes a free one. Raises ``OSError`` when the port is taken.
    """
    handler = _Handler(server)
    web_server = web.Server(
        handler.answer,
        request_factory=_request,
        handler_cancellation=True,
        keepalive_timeout=_KEEP_ALIVE_SECONDS,
        access_log=None,
    )
    runner = web.ServerRunner(web_server, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=ssl_context)
        await site.start()
        bound_port = runner.addresses[0][1]
        yield f"{'https' if ssl_context else 'http'}://{host}:{bound_port}"
    finally:
        server.drop_watches()
        await runner.cleanup()


def write_kubeconfig(path: Path, url: str, user: str = "system:admin") -> None:
    """Write a kubeconfig that leads to a listener."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "ksched", "cluster": {"server": url}}],
        "users": [{"name": user, "user": {"token": user}}],
        "contexts": [{"name": "ksched", "context": {"cluster": "ksched", "user": user}}],
        "current-context": "ksched",
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))


class _Handler:
    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def answer(self, http: web.BaseRequest) -> web.StreamResponse:
        try:
            body = await http.read() if http.body_exists else b""
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {_LARGEST_BODY_BYTES}"
            return _complete(failure(StatusError(413, "RequestEntityTooLarge", message)))
        headers = http.headers
        request = Request(
            http.method,
            http.raw_path,
            body,
            headers.get("Content-Type", JSON),
            headers.get("Accept", JSON),
            headers.get("Authorization", "").removeprefix("Bearer ") or "system:anonymous",
        )
        answer = self._server.handle(request)
        if isinstance(answer, Watch):
            return await _stream(http, answer)
        return _complete(answer)


def _complete(answer: Response) -> web.Response:
    return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


async def _stream(http: web.BaseRequest, watch: Watch) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": JSON})
    response.enable_chunked_encoding()
    try:
        await response.prepare(http)
        async for batch in watch.batches():
            await response.write(b"\n".join([*batch, b""]))
        await response.write_eof()
    except ConnectionError:
        pass  # The client has disconnected.
    finally:
        watch.close()
    return response


def _request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY_BYTES
    )
