"""Kubernetes' verbs over a transport: paths, bodies, rate limit, retries, typed errors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import msgspec

from ksched.api.decoding import ListPage, decode_list
from ksched.api.resources import (
    EVENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_CLAIMS,
    ApiResource,
)
from ksched.client.api_status import error_from_response
from ksched.client.rate_limit import RateLimiter
from ksched.client.retry import (
    NO_RETRY,
    REPEATABLE,
    STATUS_PATCH,
    UNREPEATABLE,
    RetryPolicy,
)
from ksched.client.telemetry import telemetry_of
from ksched.clock import Clock
from ksched.errors import InvalidObject, Unavailable
from ksched.metrics import Distribution
from ksched.transport import JSON, STRATEGIC_MERGE_PATCH, Response, Transport

DEFAULT_TIMEOUT = 30.0
OPEN_SECONDS = 30.0
PAGE_LIMIT = 500
_ERROR_BODY_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind: one namespace or all, restricted by selectors."""

    namespace: str = ""
    field_selector: str = ""
    label_selector: str = ""

    def only(self, namespace: str, name: str) -> Selection:
        """The object of that name, if it is selected."""
        fields = f"{self.field_selector}," if self.field_selector else ""
        return Selection(namespace, f"{fields}metadata.name={name}", self.label_selector)


EVERYTHING = Selection()


class _BindingMeta(msgspec.Struct, gc=False):
    name: str
    namespace: str
    uid: str


class _Target(msgspec.Struct, gc=False):
    name: str
    kind: str = "Node"


class _Binding(msgspec.Struct, rename="camel", gc=False):
    metadata: _BindingMeta
    target: _Target
    api_version: str = "v1"
    kind: str = "Binding"


_encode = msgspec.json.Encoder().encode


class ApiClient:
    """One user of an API server, with its own rate limit.

    Clients may share a transport: events get a client with a separate limiter, so that they never
    take a token from a bind. Errors are those of ``ksched.errors`` and name verb, path and code.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        limiter: RateLimiter | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._limiter = limiter
        self._telemetry = telemetry_of(transport)
        self._waits: dict[str, Distribution] = {}
        self._rng = rng or random.Random()
        self.in_flight = 0
        """Requests that are on their way or wait for a connection, but not for the rate limit."""

    def with_limiter(self, limiter: RateLimiter) -> ApiClient:
        """Another user of the same server, with a rate limit of its own."""
        return ApiClient(self._transport, self._clock, limiter, self._rng)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = DEFAULT_TIMEOUT,
        retry: RetryPolicy = NO_RETRY,
    ) -> bytes:
        """Send one request, repeat it as ``retry`` allows, and return the response body.

        ``timeout`` bounds one try. Waiting for the rate limit is not counted.
        """
        response = await self.exchange(
            method, path, body, content_type=content_type, timeout=timeout, retry=retry
        )
        return response.body

    async def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = DEFAULT_TIMEOUT,
        retry: RetryPolicy = NO_RETRY,
    ) -> Response:
        """The same; return the whole answer, which is a good one."""
        backoff = None
        give_up_at = 0.0
        tried = 0
        while True:
            if self._limiter is not None:
                waits = self._waits.get(method) or self._waits_of(method)
                if delay := self._limiter.acquire_nowait():
                    await self._limiter.wait(delay)
                    waits.observe(delay)
                else:
                    waits.zeros += 1
            self.in_flight += 1
            try:
                response = await self._transport.request(
                    method, path, body, content_type=content_type, timeout=timeout
                )
                if tried and self._telemetry is not None:
                    self._telemetry.repeated(method, response.status)
                if 200 <= response.status < 300:
                    return response
                error = error_from_response(method, path, response, self._clock.wall())
            except Unavailable as unavailable:
                if tried and self._telemetry is not None:
                    self._telemetry.repeated(method, 0)
                error = unavailable
            finally:
                self.in_flight -= 1
            tried += 1
            if tried >= retry.tries or not retry.applies_to(error):
                raise error
            if backoff is None:
                backoff = retry.backoff(self._rng)
                give_up_at = self._clock.now() + retry.deadline
            delay = max(backoff.next(), error.retry_after or 0.0)
            if self._clock.now() + delay > give_up_at:
                raise error
            await self._clock.sleep(delay)

    def _waits_of(self, method: str) -> Distribution:
        """Return where the waits for the rate limit are observed."""
        if method not in self._waits:
            waits = self._telemetry.waits(method) if self._telemetry else Distribution(())
            self._waits[method] = waits
        return self._waits[method]

    # -- reading --------------------------------------------------------------------------------

    async def list_page(
        self,
        resource: ApiResource,
        selection: Selection = EVERYTHING,
        *,
        limit: int = PAGE_LIMIT,
        continue_token: str = "",
        exactly_at: str = "",
        timeout: float = DEFAULT_TIMEOUT,
        retry: RetryPolicy = NO_RETRY,
    ) -> ListPage:
        """Fetch one page of a list, consistent as of the call; ``limit`` 0 means all.

        ``exactly_at`` requests the objects as of a resourceVersion.
        """
        query = {
            "limit": str(limit) if limit else "",
            "continue": continue_token,
            "resourceVersion": exactly_at,
            "resourceVersionMatch": "Exact" if exactly_at else "",
            "fieldSelector": selection.field_selector,
            "labelSelector": selection.label_selector,
        }
        path = _with_query(resource.path(selection.namespace), query)
        body = await self.request("GET", path, timeout=timeout, retry=retry)
        try:
            return decode_list(body)
        except (InvalidObject, UnicodeDecodeError) as error:
            where = path.partition("?")[0]
            raise Unavailable(0, "InvalidAnswer", f"GET {where}: not a list: {error}") from error

    @asynccontextmanager
    async def watch(
        self,
        resource: ApiResource,
        selection: Selection = EVERYTHING,
        *,
        resource_version: str,
        timeout_seconds: int = 0,
        send_initial_events: bool = False,
        idle_timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch with bookmarks and yield its lines, one undecoded event each.

        Raises if the server rejects it or does not respond within ``OPEN_SECONDS``; the iterator
        raises ``Unavailable`` when the connection breaks, and with the reason ``SILENT`` when
        nothing came for ``idle_timeout`` seconds.
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds) if timeout_seconds else "",
            "fieldSelector": selection.field_selector,
            "labelSelector": selection.label_selector,
        }
        if send_initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        path = _with_query(resource.path(selection.namespace), query)
        if self._limiter is not None:
            self._waits_of("GET").observe(await self._limiter.acquire())
        async with AsyncExitStack() as stack:
            stream = self._transport.stream(path, idle_timeout=idle_timeout)
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    answer = await stack.enter_async_context(stream)
            except TimeoutError:
                problem = f"WATCH {resource.path()}: no answer within {OPEN_SECONDS:g} seconds"
                raise Unavailable(0, "Timeout", problem) from None
            if answer.status != 200:
                body = await _read_error(answer.lines)
                response = Response(answer.status, answer.headers, body)
                raise error_from_response("WATCH", path, response, self._clock.wall())
            yield answer.lines

    async def get(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        retry: RetryPolicy = REPEATABLE,
    ) -> bytes:
        """Read one object; returns its JSON."""
        path = resource.path(namespace, name)
        return await self.request("GET", path, timeout=timeout, retry=retry)

    # -- writing --------------------------------------------------------------------------------

    async def create(
        self,
        resource: ApiResource,
        namespace: str,
        body: bytes,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        retry: RetryPolicy = UNREPEATABLE,
    ) -> bytes:
        """Create one object; ``Conflict`` with reason AlreadyExists if it exists."""
        path = resource.path(namespace)
        return await self.request("POST", path, body, timeout=timeout, retry=retry)

    async def update(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        body: bytes,
        *,
        subresource: str = "",
        timeout: float = DEFAULT_TIMEOUT,
        retry: RetryPolicy = UNREPEATABLE,
    ) -> bytes:
        """Replace one object; ``Conflict`` if it was updated since it was read."""
        path = resource.path(namespace, name, subresource)
        return await self.request("PUT", path, body, timeout=timeout, retry=retry)

    async def patch(
        self,
        resource: ApiResource,
        namespace: str,
        name: str,
        body: bytes,
        *,
        subresource: str = "",
        content_type: str = STRATEGIC_MERGE_PATCH,
        timeout: float = DEFAULT_TIMEOUT,
        retry: RetryPolicy = REPEATABLE,
    ) -> bytes:
        """Change fields of one object."""
        path = resource.path(namespace, name, subresource)
        return await self.request(
            "PATCH", path, body, content_type=content_type, timeout=timeout, retry=retry
        )

    async def bind(
        self,
        namespace: str,
        name: str,
        uid: str,
        node_name: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Assign a pod to a node.

        ``Conflict``: the pod has a node already, or the uid is another pod's. If the response was
        lost the pod may be bound nevertheless: see ``BindingCycle._is_bound_anyway``.
        """
        body = _encode(_Binding(_BindingMeta(name, namespace, uid), _Target(node_name)))
        path = PODS.path(namespace, name, "binding")
        await self.exchange("POST", path, body, timeout=timeout, retry=UNREPEATABLE)

    async def patch_pod_status(self, namespace: str, name: str, body: bytes) -> bytes:
        """Merge ``body`` strategically into a pod's status and return the pod as stored."""
        return await self.patch(
            PODS, namespace, name, body, subresource="status", retry=STATUS_PATCH
        )

    async def delete_pod(self, namespace: str, name: str, uid: str = "") -> None:
        """Delete a pod with its own grace period; with ``uid`` only that very pod."""
        options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        path = PODS.path(namespace, name)
        await self.request("DELETE", path, _encode(options), retry=REPEATABLE)

    async def read_volume(self, name: str) -> bytes:
        """Read a PersistentVolume."""
        return await self.get(PERSISTENT_VOLUMES, "", name)

    async def update_volume(self, name: str, body: bytes) -> bytes:
        """Replace a PersistentVolume and return it as stored; ``Conflict`` as for ``update``."""
        return await self.update(PERSISTENT_VOLUMES, "", name, body)

    async def read_claim(self, namespace: str, name: str) -> bytes:
        """Read a PersistentVolumeClaim."""
        return await self.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)

    async def update_claim(self, namespace: str, name: str, body: bytes) -> bytes:
        """Replace a PersistentVolumeClaim and return it as stored."""
        return await self.update(PERSISTENT_VOLUME_CLAIMS, namespace, name, body)

    async def read_resource_claim(self, namespace: str, name: str) -> bytes:
        """Read a ResourceClaim."""
        return await self.get(RESOURCE_CLAIMS, namespace, name)

    async def create_resource_claim(self, namespace: str, body: bytes) -> bytes:
        """Create a ResourceClaim and return it as stored."""
        return await self.create(RESOURCE_CLAIMS, namespace, body)

    async def update_resource_claim(
        self, namespace: str, name: str, body: bytes, *, subresource: str = ""
    ) -> bytes:
        """Replace a ResourceClaim, or its status, and return it as stored."""
        return await self.update(RESOURCE_CLAIMS, namespace, name, body, subresource=subresource)

    async def patch_resource_claim_status(self, namespace: str, name: str, body: bytes) -> bytes:
        """Merge ``body`` strategically into a ResourceClaim's status and return it as stored."""
        return await self.patch(RESOURCE_CLAIMS, namespace, name, body, subresource="status")

    async def delete_resource_claim(self, namespace: str, name: str) -> None:
        """Delete a ResourceClaim."""
        path = RESOURCE_CLAIMS.path(namespace, name)
        await self.request("DELETE", path, retry=REPEATABLE)

    async def create_event(self, namespace: str, body: bytes) -> None:
        """Create an ``events.k8s.io/v1`` Event."""
        await self.exchange("POST", EVENTS.path(namespace), body, retry=UNREPEATABLE)

    async def patch_event(self, namespace: str, name: str, body: bytes) -> None:
        """Merge ``body`` into an Event, to count its series."""
        await self.patch(EVENTS, namespace, name, body)


def _with_query(path: str, query: Mapping[str, str]) -> str:
    pairs = [(name, value) for name, value in query.items() if value]
    return f"{path}?{urlencode(pairs, quote_via=quote)}" if pairs else path


async def _read_error(lines: AsyncIterator[bytes]) -> bytes:
    """Read the body of a rejected watch, bounded."""
    body = b""
    async for line in lines:
        body += line
        if len(body) > _ERROR_BODY_LIMIT:
            break
    return body
