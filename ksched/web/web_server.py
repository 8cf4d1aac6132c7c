"""The scheduler's own HTTP server: health, metrics, configuration and debug views.

``listener`` has the connections, ``rendering`` the long pages. Every request passes ``_answered``,
which sends the response and hides internal errors from the client.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from ksched.configuration import configz
from ksched.metrics import Metrics
from ksched.scheduling.scheduler import Scheduler
from ksched.web.access import Access, credentials_of
from ksched.web.health import Check, Health, Report
from ksched.web.listener import IDLE_SECONDS, ContextSource, Listener
from ksched.web.rendering import Renderer, json_pieces
from ksched.web.views import decisions_view, group_view, groups_view, queue_view, story_view

log = logging.getLogger(__name__)
_protocol_log = logging.getLogger(f"{__name__}.protocol")
# A malformed request gets a 400 and is no error of ours, though aiohttp logs it as one.
_protocol_log.addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
)

SHUTDOWN_SECONDS: Final = 5.0
DEFAULT_LIMIT: Final = 500
MAX_LIMIT: Final = 10_000

_PATHS: Final = (
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/configz",
    "/debug/queue",
    "/debug/decisions",
    "/debug/groups",
    "/debug/groups/{namespace}/{name}",
    "/debug/story/{namespace}/{name}",
)


class WebServer:
    """Serves one scheduler at a time, which may be replaced.

    ``live`` and ``ready`` are the checks of its health endpoints. ``access`` decides who may read;
    with None everybody who can connect.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        metrics: Metrics,
        *,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
        access: Access | None,
    ) -> None:
        self.scheduler = scheduler
        self._access = access
        self._health = {
            "healthz": Health("healthz", live),
            "livez": Health("livez", live),
            "readyz": Health("readyz", {**live, **ready}),
        }
        self._collectors: list[Collector] = [metrics, *_process_collectors()]
        self._renderer = Renderer()
        self._listener: Listener | None = None

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, tls: ContextSource | None = None
    ) -> AsyncIterator[str]:
        """Serve while the block runs; yields the URL. ``OSError`` if the port is in use.

        ``tls`` gives the context for a new connection; without it this is plain HTTP.
        """
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=IDLE_SECONDS,
            logger=_protocol_log,
            # The body of a request is not read.
            lingering_time=0.0,
            shutdown_timeout=SHUTDOWN_SECONDS,
        )
        await runner.setup()
        assert runner.server is not None
        self._listener = Listener(runner.server)
        try:
            async with self._listener.listening(host, port, tls) as actual_port:
                scheme = "https" if tls else "http"
                shown = f"[{host}]" if ":" in host else host
                yield f"{scheme}://{shown}:{actual_port}"
        finally:
            await runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._answered])
        application.add_routes(
            [
                web.get("/", self._index),
                web.get("/{endpoint:healthz|livez|readyz}", self._health_of),
                web.get("/{endpoint:healthz|livez|readyz}/{check}", self._one_check),
                web.get("/metrics", self._metrics),
                web.get("/configz", self._configz),
                web.get("/debug/queue", self._queue),
                web.get("/debug/decisions", self._decisions),
                web.get("/debug/groups", self._groups),
                web.get("/debug/groups/{namespace}/{name}", self._group),
                web.get("/debug/story/{namespace}/{name}", self._story),
            ]
        )
        return application

    @web.middleware
    async def _answered(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Respond to one request, completely, within the connection's deadline."""
        assert self._listener is not None
        with self._listener.request(request.protocol):
            response = await self._response(request, handler)
            try:
                await response.prepare(request)
                await response.write_eof()
            except ConnectionError:
                log.debug("reader left", extra={"path": request.path})
            return response

    async def _response(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            refused = await self._refused(request)
            return await handler(request) if refused is None else refused
        except web.HTTPException as refusal:
            allowed = {"Allow": refusal.headers["Allow"]} if "Allow" in refusal.headers else None
            return web.Response(text=refusal.text, status=refusal.status, headers=allowed)
        except Exception:
            # A view that fails is a bug of ours, for the log and not for the client.
            log.exception("request failed", extra={"path": request.path})
            return web.Response(text="internal error\n", status=500)

    async def _refused(self, request: web.Request) -> web.Response | None:
        """Return the response to a request that is not allowed."""
        if self._access is None:
            return None
        transport = request.transport
        ssl_object = transport.get_extra_info("ssl_object") if transport else None
        credentials = credentials_of(request.headers.get("Authorization", ""), ssl_object)
        refusal = await self._access.refusal(request.method, request.path, credentials)
        if refusal is None:
            return None
        headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache, private"}
        if refusal.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return web.Response(
            body=refusal.body,
            status=refusal.status,
            content_type="application/json",
            headers=headers,
        )

    async def _index(self, request: web.Request) -> web.Response:
        return _json(b"".join(json_pieces({"paths": _PATHS})))

    async def _health_of(self, request: web.Request) -> web.Response:
        health = self._health[request.match_info["endpoint"]]
        verbose = "verbose" in request.query
        return _answer(health.report(verbose, request.query.getall("exclude", ())))

    async def _one_check(self, request: web.Request) -> web.Response:
        health, check = self._health[request.match_info["endpoint"]], request.match_info["check"]
        if check not in health:
            raise web.HTTPNotFound
        return _answer(health.report_one(check))

    async def _metrics(self, request: web.Request) -> web.Response:
        is_open = _wants_openmetrics(request.headers.get("Accept", ""))
        encode, content_type = _OPENMETRICS if is_open else _PLAIN

        def pieces() -> Iterator[bytes]:
            # Numbers are read here, between two tasks, and are consistent; formatting them takes
            # longer.
            metrics = [metric for one in self._collectors for metric in one.collect()]
            for metric in metrics:
                yield from _written(metric, encode)
            yield _END_OF_OPENMETRICS if is_open else b""

        body = await self._renderer.page(f"metrics {is_open}", pieces)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _configz(self, request: web.Request) -> web.Response:
        return await self._page(
            request, lambda: {"componentconfig": configz(self.scheduler.configuration)}
        )

    async def _queue(self, request: web.Request) -> web.Response:
        limit = _limit(request)
        return await self._page(request, lambda: queue_view(self.scheduler, limit), limit)

    async def _decisions(self, request: web.Request) -> web.Response:
        limit = _limit(request)
        return await self._page(request, lambda: decisions_view(self.scheduler, limit), limit)

    async def _groups(self, request: web.Request) -> web.Response:
        limit = _limit(request)
        return await self._page(request, lambda: groups_view(self.scheduler, limit), limit)

    async def _group(self, request: web.Request) -> web.Response:
        name, limit = (
            f"{request.match_info['namespace']}/{request.match_info['name']}",
            _limit(request),
        )
        view = group_view(self.scheduler, name, limit)
        if view is None:
            raise web.HTTPNotFound(text=f"pod group {name}: not known to this scheduler\n")
        return await self._page(request, lambda: view, limit)

    async def _story(self, request: web.Request) -> web.Response:
        pod = f"{request.match_info['namespace']}/{request.match_info['name']}"
        view = story_view(self.scheduler, pod)
        if view is None:
            raise web.HTTPNotFound(text=f"pod {pod}: not known to this scheduler\n")
        return await self._page(request, lambda: view)

    async def _page(
        self, request: web.Request, view: Callable[[], Any], limit: int = 0
    ) -> web.Response:
        # Pages of a previous scheduler must not be reused.
        name = f"{id(self.scheduler)} {request.path} {limit}"
        return _json(await self._renderer.page(name, lambda: json_pieces(view())))


class _Collected(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _process_collectors() -> list[Collector]:
    """``process_*`` and ``python_*``, kept out of the process-wide registry."""
    registry = CollectorRegistry()
    return [
        ProcessCollector(registry=None),
        PlatformCollector(registry=None),
        GCCollector(registry=registry),
    ]


_PLAIN: Final = choose_encoder("")
_OPENMETRICS: Final = choose_encoder("application/openmetrics-text; version=1.0.0")
_SAMPLES: Final = 100
_END_OF_OPENMETRICS: Final = b"# EOF\n"


def _wants_openmetrics(accept: str) -> bool:
    """Whether that format is accepted; the rest of the header is ignored."""
    types = (part.partition(";")[0].strip() for part in accept.lower().split(","))
    return "application/openmetrics-text" in types


def _written(metric: Metric, encode: Callable[[Collector], bytes]) -> Iterator[bytes]:
    """Format one family in chunks of samples; only the first has the comments."""
    samples = metric.samples
    for start in range(0, max(len(samples), 1), _SAMPLES):
        part = Metric(metric.name, metric.documentation, metric.type, metric.unit)
        part.samples = samples[start : start + _SAMPLES]
        lines = encode(_Collected([part])).removesuffix(_END_OF_OPENMETRICS)
        while start and lines.startswith(b"#"):
            lines = lines.partition(b"\n")[2]
        yield lines


def _answer(report: Report) -> web.Response:
    headers = {"X-Content-Type-Options": "nosniff"}
    return web.Response(text=report.text, status=200 if report.is_healthy else 500, headers=headers)


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(DEFAULT_LIMIT))
    # ``int`` rejects very long digit strings with an error.
    is_number = text.isascii() and text.isdecimal() and len(text.lstrip("0")) < 10
    if not is_number or not 0 < int(text) <= MAX_LIMIT:
        raise web.HTTPBadRequest(text=f"limit: got {text[:40]!r}, wanted 1 to {MAX_LIMIT}\n")
    return int(text)
