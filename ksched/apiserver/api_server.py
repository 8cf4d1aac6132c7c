"""The API server: store, rules and routes, with a log of requests."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from ksched.apiserver.access_reviews import REVIEWS, AccessReviews
from ksched.apiserver.admission import (
    SYSTEM_NAMESPACES,
    SYSTEM_PRIORITY_CLASSES,
    system_priority_class,
)
from ksched.apiserver.custom_resources import CustomResources
from ksched.apiserver.discovery import discover
from ksched.apiserver.object_store import Store
from ksched.apiserver.reading import Reader
from ksched.apiserver.request import (
    Call,
    Request,
    Target,
    describe,
    no_such_path,
    parse_query,
    parse_target,
)
from ksched.apiserver.resource_registry import Registry
from ksched.apiserver.routes import Routes
from ksched.apiserver.served_resources import (
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    ServedResources,
)
from ksched.apiserver.status_errors import StatusError, bad_request
from ksched.apiserver.watching import Watch
from ksched.clock import Clock
from ksched.transport import JSON, Response

_HEALTH = ("/healthz", "/livez", "/readyz")


class Audit(NamedTuple):
    """One line of the request log; verb and resource as in Kubernetes' audit log."""

    at: float
    verb: str
    resource: str
    path: str
    user: str
    code: int


class ApiServer:
    """An API server in memory; ``handle`` is its only door and never waits."""

    def __init__(
        self,
        clock: Clock,
        *,
        seed: int = 0,
        history: int = 10_000,
        watch_queue_limit: int = 10_000,
        log_length: int = 10_000,
    ) -> None:
        self.clock, self.store = clock, Store(history)
        self.requests: deque[Audit] = deque(maxlen=log_length)
        self.resources = ServedResources()
        """What is served now: CustomResourceDefinitions add to it."""
        self._custom_resources = CustomResources(self.store, self.resources)
        self._registry = Registry(self.store, self.resources, clock, seed)
        self._routes = Routes(self._registry, Reader(self._registry, seed, watch_queue_limit))
        self.reviews = AccessReviews()
        self._is_bootstrapped = False

    def handle(self, request: Request) -> Response | Watch:
        """Handle one request; a watch is returned open and must be closed by its reader."""
        if not self._is_bootstrapped:
            self._bootstrap()
        path, _, query = request.path.partition("?")
        target = parse_target(path, self.resources)
        try:
            answer = self._answer(request, path, query, target)
        except StatusError as error:
            answer = failure(error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Objects are plain data here, so a body of the wrong shape (a list for a map, say) is
            # noticed only where it is used. Without a body it cannot be the writer's fault.
            if not request.body:
                raise
            message = f"the object provided is unrecognized (wrong shape): {error!r}"
            answer = failure(bad_request(message))
        code = 200 if isinstance(answer, Watch) else answer.status
        verb, resource = describe(request.method, target, query)
        line = Audit(self.clock.now(), verb, resource, request.path, request.user, code)
        self.requests.append(line)
        return answer

    def drop_watches(self) -> None:
        """End the open watches; their readers see the stream close in good order."""
        for collection in self.store.collections():
            for watch in tuple(collection.watches):
                watch.close()

    def _answer(
        self, request: Request, path: str, query: str, target: Target | None
    ) -> Response | Watch:
        if target is not None:
            return self._routes.handle(Call(request, target, parse_query(query)))
        if request.method in ("GET", "HEAD"):
            plain = path.rstrip("/") or "/"
            if plain in _HEALTH:
                return Response(200, {"Content-Type": "text/plain; charset=utf-8"}, b"ok")
            found = discover(plain, self.resources)
            if found is not None:
                return Response(200, {"Content-Type": JSON}, msgspec.json.encode(found))
        elif request.method == "POST" and path in REVIEWS:
            return self.reviews.handle(request, path)
        parts = path.strip("/").split("/")
        if len(parts) == 5 and parts[:3] == ["api", "v1", "namespaces"] and parts[4] == "bindings":
            call = Call(request, Target(PODS, parts[3]), parse_query(query))
            return self._routes.legacy_binding(call)
        if self._is_served_group(parts):
            raise no_such_path()
        return Response(404, {"Content-Type": "text/plain; charset=utf-8"}, b"404 page not found\n")

    def _is_served_group(self, parts: list[str]) -> bool:
        version = parts[1:2] if parts[0] == "api" else parts[1:3] if parts[0] == "apis" else []
        return any("/".join(version) == row.group_version for row in self.resources)

    def _bootstrap(self) -> None:
        """Create what every cluster has. Late, because timestamps need a running clock."""
        self._is_bootstrapped = True
        for name in SYSTEM_NAMESPACES:
            self._registry.create(NAMESPACES, "", {"metadata": {"name": name}})
        for name in SYSTEM_PRIORITY_CLASSES:
            self._registry.create(PRIORITY_CLASSES, "", system_priority_class(name))


def failure(error: StatusError) -> Response:
    """Return the response of a rejected request."""
    headers = {"Content-Type": JSON}
    if error.retry_after is not None:
        headers["Retry-After"] = str(int(error.retry_after))
    return Response(error.code, headers, msgspec.json.encode(error.status()))
