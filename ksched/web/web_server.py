"""The scheduler's own HTTP server: health, metrics, configuration, flags and debug views.

``listener`` has the connections, ``rendering`` the long pages. Every request passes ``_answered``,
which sends the response and hides internal errors from the client.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from ipaddress import ip_address
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client.registry import Collector

from ksched.configuration import configz
from ksched.metrics import Metrics
from ksched.scheduling.scheduler import Scheduler
from ksched.web.access import Access, credentials_of
from ksched.web.dashboard import PATHS, show_file
from ksched.web.dashboard_views import node_view, nodes_pieces, overview_view
from ksched.web.exposition import accepted_format, process_collectors, process_start_metric
from ksched.web.health import Check, Health, Report
from ksched.web.listener import IDLE_SECONDS, ContextSource, Listener
from ksched.web.rendering import Renderer, json_pieces
from ksched.web.resource_metrics import resource_pieces
from ksched.web.sli_metrics import SliMetrics
from ksched.web.verbosity import VERBOSITY, VerbosityFlag
from ksched.web.views import View, decisions_view, group_view, groups_view, queue_view, story_view
from ksched.web.zpages import ZPage, flagz, statusz, wants_indentation

if TYPE_CHECKING:
    from ksched.web.explanations import Explanations
    from ksched.web.profiles import Profiles

log = logging.getLogger(__name__)
_protocol_log = logging.getLogger(f"{__name__}.protocol")


def _is_of_client(error: BaseException | None) -> bool:
    """Whether a request was malformed or its sender left; uvloop has no class for the latter."""
    if isinstance(error, RuntimeError):
        return "the handler is closed" in str(error)
    return isinstance(error, HttpProcessingError | ConnectionError)


# A malformed request gets a 400 and is no error of ours, though aiohttp logs it as one.
_protocol_log.addFilter(lambda record: not (record.exc_info and _is_of_client(record.exc_info[1])))

SHUTDOWN_SECONDS: Final = 5.0
DEFAULT_LIMIT: Final = 500
MAX_LIMIT: Final = 10_000

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

RELOAD: Final = "/reload"
_PPROF: Final = "/debug/pprof"
_PROFILES: Final = ("/", "/profile", "/goroutine", "/heap", "/cmdline", "/{name}")


class Reloads(Protocol):
    """Loads the configuration file of the process again."""

    def view(self) -> View:
        """Which configuration decides, and what became of the last file."""
        ...

    async def requested(self) -> View:
        """Load the file; the ``problems`` of the result are empty if it can be used."""
        ...


class WebServer:
    """Serves one scheduler at a time, which may be replaced.

    ``live`` and ``ready`` are the checks of its health endpoints. ``access`` decides who may read;
    with None everybody who can connect, but no page whose own name leads to this machine.
    ``flags`` are shown at /flagz, which is absent with None.
    Only a replica that ``is_leading`` shows the resources of pods, so that they count once.
    ``election`` describes leader and lease for the dashboard, if there is an election.
    ``reloads`` is None without a configuration file. ``set_verbosity`` changes how much is logged;
    the path for that is absent with None. It and the profiles are not found while the configuration
    disables profiling.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        metrics: Metrics,
        *,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
        access: Access | None,
        flags: Mapping[str, str] | None = None,
        has_statusz: bool = True,
        is_leading: Callable[[], bool] = lambda: True,
        election: Callable[[], View] | None = None,
        reloads: Reloads | None = None,
        set_verbosity: Callable[[int], None] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self._metrics_of_scheduler, self._election = metrics, election
        self._access = access
        self._reloads = reloads
        self._slis = SliMetrics()
        self._health = {
            name: Health(name, checks, self._slis.observe)
            for name, checks in (
                ("healthz", live),
                ("livez", live),
                ("readyz", {**live, **ready}),
            )
        }
        self._collectors: list[Collector] = [metrics, *process_collectors()]
        self._is_leading = is_leading
        self._renderer = Renderer()
        self._listener: Listener | None = None
        self._routes = self._make_routes()
        self._writing: dict[str, Handler] = {RELOAD: self._reload}
        if set_verbosity is not None:
            self._verbosity = VerbosityFlag(set_verbosity)
            self._writing[VERBOSITY] = self._set_verbosity
        if flags is not None:
            self._routes["/flagz"] = _z_page(flagz(flags))
        if has_statusz:
            self._routes["/statusz"] = _z_page(self._make_statusz())

    @property
    def paths(self) -> list[str]:
        """All paths that are served; a part in braces stands for any name."""
        return sorted([*self._routes, *self._writing])

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, tls: ContextSource | None = None
    ) -> AsyncIterator[str]:
        """Serve while the block runs; yields the URL. ``OSError`` if the port is in use.

        ``tls`` gives the context for a new connection to an address; without it this is plain HTTP.
        """
        application = web.Application(middlewares=[self._answered])
        application.add_routes([web.get(path, handler) for path, handler in self._routes.items()])
        application.add_routes([web.post(RELOAD, self._reload)])
        if VERBOSITY in self._writing:
            application.add_routes([web.route("*", VERBOSITY, self._writing[VERBOSITY])])
        runner = web.AppRunner(
            application,
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
        runner.server.request_handler = _with_known_expectations(runner.server.request_handler)
        self._listener = Listener(runner.server)
        try:
            async with self._listener.listening(host, port, tls) as actual_port:
                scheme = "https" if tls else "http"
                shown = f"[{host}]" if ":" in host else host
                yield f"{scheme}://{shown}:{actual_port}"
        finally:
            await runner.cleanup()

    def _make_routes(self) -> dict[str, Handler]:
        """kube-scheduler: newEndpointsHandler."""
        routes: dict[str, Handler] = {
            "/": self._index,
            "/metrics": self._metrics,
            "/metrics/slis": self._sli_metrics,
            "/metrics/resources": self._resource_metrics,
            "/configz": self._configz,
            "/debug/overview": self._overview,
            "/debug/nodes": self._nodes,
            "/debug/nodes/{name}": self._node,
            "/debug/queue": self._queue,
            "/debug/decisions": self._decisions,
            "/debug/groups": self._groups,
            "/debug/groups/{namespace}/{name}": self._group,
            "/debug/story/{namespace}/{name}": self._story,
            "/debug/explain/{namespace}/{name}": self._explain,
        }
        routes |= dict.fromkeys(PATHS, show_file)
        routes[_PPROF] = self._profile
        routes |= {_PPROF + name: self._profile for name in _PROFILES}
        for name, health in self._health.items():
            routes[f"/{name}"] = _all_checks(health)
            routes[f"/{name}/{{check}}"] = _one_check(health)
        return routes

    def _make_statusz(self) -> ZPage:
        wall, metric = self.scheduler.clock.wall, process_start_metric()
        started = metric.samples[0].value if metric is not None else wall()
        return statusz(started, wall, [*self.paths, "/statusz"])

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Respond to one request, completely, within the connection's deadline."""
        assert self._listener is not None
        with self._listener.request(request.protocol):
            response = await self._response(request, handler)
            try:
                await response.prepare(request)
                await response.write_eof()
            except (ConnectionError, RuntimeError) as error:
                if not _is_of_client(error):
                    raise
                log.debug("reader left", extra={"path": request.path})
            return response

    async def _response(self, request: web.Request, handler: Handler) -> web.StreamResponse:
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
            _refuse_other_names(request)
            return None
        transport = request.transport
        ssl_object = transport.get_extra_info("ssl_object") if transport else None
        sent = request.headers
        credentials = credentials_of(sent.get("Authorization", ""), ssl_object, tuple(sent.items()))
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
        return _json(b"".join(json_pieces({"paths": self.paths})))

    async def _metrics(self, request: web.Request) -> web.Response:
        return await self._metrics_page(request, self._collectors)

    async def _sli_metrics(self, request: web.Request) -> web.Response:
        return await self._metrics_page(request, [self._slis])

    async def _metrics_page(
        self, request: web.Request, collectors: list[Collector]
    ) -> web.Response:
        chosen = accepted_format(request.headers.get("Accept", ""))
        name = f"{request.path} {chosen.content_type}"
        body = await self._renderer.page(name, lambda: chosen.pieces(collectors))
        return web.Response(body=body, headers={"Content-Type": chosen.content_type})

    async def _resource_metrics(self, request: web.Request) -> web.Response:
        """kube-scheduler: installMetricHandler."""
        chosen = accepted_format(request.headers.get("Accept", ""), is_streamed=True)
        headers = {"Content-Type": chosen.content_type}
        if not self._is_leading():
            return web.Response(headers=headers)
        pods = self.scheduler.pod_reflector.objects.values()
        pieces = chain(resource_pieces(list(pods)), [chosen.end])
        return web.Response(body=self._renderer.stream(pieces), headers=headers)

    async def _configz(self, request: web.Request) -> web.Response:
        def view() -> View:
            shown: View = {"componentconfig": configz(self.scheduler.configuration)}
            return {**shown, "reload": self._reloads.view()} if self._reloads else shown

        return await self._page(request, view)

    async def _reload(self, request: web.Request) -> web.Response:
        _refuse_pages(request)
        if self._reloads is None:
            text = "there is no file to load again: the process was started without --config\n"
            raise web.HTTPConflict(text=text)
        view = await self._reloads.requested()
        response = _json(b"".join(json_pieces(view)))
        response.set_status(422 if view["problems"] else 200)
        return response

    async def _set_verbosity(self, request: web.Request) -> web.Response:
        if not self.scheduler.configuration.enable_profiling:
            raise web.HTTPNotFound
        _refuse_pages(request)
        return await self._verbosity.answer(request)

    async def _overview(self, request: web.Request) -> web.Response:
        metrics, election = self._metrics_of_scheduler, self._election
        return await self._page(request, lambda: overview_view(self.scheduler, metrics, election))

    async def _nodes(self, request: web.Request) -> web.Response:
        name = f"{id(self.scheduler)} {request.path}"
        return _json(await self._renderer.page(name, lambda: nodes_pieces(self.scheduler)))

    async def _node(self, request: web.Request) -> web.Response:
        name, limit = request.match_info["name"], _limit(request)
        view = node_view(self.scheduler, name, limit)
        if view is None:
            raise web.HTTPNotFound(text=f"node {name}: not known to this scheduler\n")
        return await self._page(request, lambda: view, limit)

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

    @cached_property
    def _explanations(self) -> Explanations:
        # A scheduler of which no pod is explained need not load what does it.
        from ksched.web.explanations import Explanations

        return Explanations(self._renderer)

    async def _explain(self, request: web.Request) -> web.Response:
        pod = f"{request.match_info['namespace']}/{request.match_info['name']}"
        known = self.scheduler.pod_reflector.objects.get(pod)
        if known is None:
            raise web.HTTPNotFound(text=f"pod {pod}: not known to this scheduler\n")
        return await self._explanations.response(self.scheduler, known.metadata)

    @cached_property
    def _profiles(self) -> Profiles:
        # Nor need one that is not profiled.
        from ksched.web.profiles import Profiles

        return Profiles(self._renderer, self.scheduler.clock.wall)

    async def _profile(self, request: web.Request) -> web.Response:
        if not self.scheduler.configuration.enable_profiling:
            raise web.HTTPNotFound
        return await self._profiles.response(request)

    async def _page(
        self, request: web.Request, view: Callable[[], Any], limit: int = 0
    ) -> web.Response:
        # Pages of a previous scheduler or configuration must not be reused.
        origin = f"{id(self.scheduler)} {id(self.scheduler.configuration)}"
        name = f"{origin} {request.path} {limit}"
        return _json(await self._renderer.page(name, lambda: json_pieces(view())))


def _with_known_expectations(handle: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse other expectations than 100-continue; aiohttp fails where one is not ASCII."""

    async def handle_known(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Expect", "100-continue").lower() != "100-continue":
            return web.Response(text="unknown expectation\n", status=417)
        response: web.StreamResponse = await handle(request)
        return response

    return handle_known


def _refuse_pages(request: web.Request) -> None:
    """Refuse what the page of another site sends; a browser adds its user's certificate to that.

    No page of ours writes anything, and only browsers send these headers.
    """
    if "Origin" in request.headers or request.headers.get("Sec-Fetch-Site", "none") != "none":
        raise web.HTTPForbidden(text="a page in a browser may not do this\n")


def _refuse_other_names(request: web.Request) -> None:
    """Refuse a page of another site that lets its own name lead to a loopback address.

    For the browser such a page is of the same site as what is served here, and may read it.
    """
    host = request.headers.get("Host", "").lower()
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name not in ("", "localhost") and not name.endswith(".localhost") and not _is_address(name):
        raise web.HTTPForbidden(text="this port is to be called localhost\n")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _all_checks(health: Health) -> Handler:
    async def report(request: web.Request) -> web.Response:
        verbose = "verbose" in request.query
        return _answer(health.report(verbose, request.query.getall("exclude", ())))

    return report


def _one_check(health: Health) -> Handler:
    async def report(request: web.Request) -> web.Response:
        check = request.match_info["check"]
        if check not in health:
            raise web.HTTPNotFound
        return _answer(health.report_one(check))

    return report


def _z_page(page: ZPage) -> Handler:
    async def show(request: web.Request) -> web.Response:
        user_agent = request.headers.get("User-Agent", "")
        is_pretty = wants_indentation(request.query.get("pretty"), user_agent)
        answer = page.answer(request.headers.get("Accept", ""), is_pretty=is_pretty)
        headers = {"Content-Type": answer.content_type, **answer.headers}
        return web.Response(body=answer.body, status=answer.status, headers=headers)

    return show


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
