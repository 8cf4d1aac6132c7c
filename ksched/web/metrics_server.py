"""A small HTTP server for commands that are no scheduler: ``/metrics`` and ``/healthz``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.registry import Collector

from ksched.web.exposition import accepted_format, process_collectors
from ksched.web.listener import IDLE_SECONDS, Listener


@asynccontextmanager
async def serving_metrics(
    collectors: Sequence[Collector], is_healthy: Callable[[], bool], host: str, port: int
) -> AsyncIterator[str]:
    """Serve while the block runs; yields the URL. ``OSError`` if the port is in use."""
    every = [*collectors, *process_collectors()]

    async def metrics(request: web.Request) -> web.Response:
        text = accepted_format(request.headers.get("Accept", ""))
        body = b"".join(text.pieces(every))
        return web.Response(body=body, headers={"Content-Type": text.content_type})

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok") if is_healthy() else web.Response(status=503, text="listing")

    application = web.Application()
    application.add_routes([web.get("/metrics", metrics), web.get("/healthz", healthz)])
    runner = web.AppRunner(application, access_log=None, keepalive_timeout=IDLE_SECONDS)
    await runner.setup()
    assert runner.server is not None
    try:
        async with Listener(runner.server).listening(host, port, None) as actual_port:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{actual_port}"
    finally:
        await runner.cleanup()
