"""A transport that counts requests and logs the begin and end of an outage."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from ksched.clock import stopwatch
from ksched.errors import Unavailable
from ksched.metrics import Distribution, Metrics
from ksched.transport import JSON, Response, StreamResponse, Transport

log = logging.getLogger(__name__)

Observe = Callable[[float], None]

_NO_ANSWER = "<error>"


class _Observed(NamedTuple):
    """Takes what is observed of requests of one method."""

    sent: Observe
    seconds: Observe
    received: Observe


class RequestTelemetry:
    """Implements ``telemetry.Telemetry`` for the server of one host."""

    def __init__(self, metrics: Metrics, host: str) -> None:
        self._waits = metrics.rest_client_rate_limiter_duration
        self._retries, self._host = metrics.rest_client_request_retries, host

    def waits(self, method: str) -> Distribution:
        return self._waits.of(method, self._host)

    def repeated(self, method: str, status: int) -> None:
        self._retries.increment(str(status) if status else _NO_ANSWER, method, self._host)


class ObservedTransport:
    """Forwards everything; ``server`` is the address shown in metrics and log lines.

    The server counts as unreachable when a request fails and no response has arrived since that
    request began: under load a single one may be lost. Of several transports to one server only one
    should log: ``logs_outages``.
    """

    def __init__(
        self, transport: Transport, server: str, metrics: Metrics, *, logs_outages: bool = True
    ) -> None:
        self._transport = transport
        self._logs_outages = logs_outages
        self._server = server
        self._host = urlsplit(server).netloc
        self._requests = metrics.rest_client_requests
        self._metrics = metrics
        self._by_method: dict[str, _Observed] = {}
        self.telemetry = RequestTelemetry(metrics, self._host)
        self._answered_at = stopwatch()
        self._lost_at: float | None = None

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Response:
        sent, seconds, received = self._by_method.get(method) or self._observed(method)
        sent(len(body) if body else 0)
        began = stopwatch()
        try:
            response = await self._transport.request(
                method, path, body, content_type=content_type, timeout=timeout
            )
        except Unavailable as error:
            self._unanswered(method, began, error)
            raise
        self._answered(method, response.status)
        seconds(self._answered_at - began)
        received(len(response.body))
        return response

    @asynccontextmanager
    async def stream(
        self, path: str, *, idle_timeout: float | None = None
    ) -> AsyncIterator[StreamResponse]:
        began, is_open = stopwatch(), False
        try:
            async with self._transport.stream(path, idle_timeout=idle_timeout) as answer:
                is_open = True
                self._answered("GET", answer.status)
                yield answer
        except Unavailable as error:
            if not is_open:
                self._unanswered("GET", began, error)
            raise

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _observed(self, method: str) -> _Observed:
        histograms = (
            self._metrics.rest_client_request_size,
            self._metrics.rest_client_request_duration,
            self._metrics.rest_client_response_size,
        )
        found = _Observed(*(one.of(method, self._host).observe for one in histograms))
        self._by_method[method] = found
        return found

    def _answered(self, method: str, status: int) -> None:
        self._answered_at = stopwatch()
        self._requests.increment(str(status), method, self._host)
        if self._lost_at is not None:
            seconds = round(self._answered_at - self._lost_at, 1)
            # At the same level as the line about the outage.
            log.warning(
                "API server answers again", extra={"server": self._server, "after_seconds": seconds}
            )
            self._lost_at = None

    def _unanswered(self, method: str, began: float, error: Unavailable) -> None:
        self._requests.increment(_NO_ANSWER, method, self._host)
        if self._logs_outages and self._lost_at is None and self._answered_at <= began:
            self._lost_at = stopwatch()
            log.warning(
                "API server does not answer, trying again",
                extra={"server": self._server, "err": error.message},
            )
