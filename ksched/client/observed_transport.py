"""A transport that counts requests and logs the begin and end of an outage."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from ksched.clock import stopwatch
from ksched.errors import Unavailable
from ksched.metrics import Distribution, Histogram, Metrics
from ksched.transport import JSON, Response, StreamResponse, Transport

log = logging.getLogger(__name__)

_NO_ANSWER = "<error>"


class _ByMethod(dict[str, Distribution]):
    """The series of a histogram for one host, made when a method is first seen."""

    def __init__(self, histogram: Histogram, host: str) -> None:
        self._histogram, self._host = histogram, host

    def __missing__(self, method: str) -> Distribution:
        series = self[method] = self._histogram.of(method, self._host)
        return series


class RequestTelemetry:
    """Implements ``ksched.transport.Telemetry`` for the server of one host."""

    def __init__(self, metrics: Metrics, host: str) -> None:
        self._waits = _ByMethod(metrics.rest_client_rate_limiter_duration, host)
        self._retries, self._host = metrics.rest_client_request_retries, host

    def throttled(self, method: str, seconds: float) -> None:
        self._waits[method].observe(seconds)

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
        self._durations = _ByMethod(metrics.rest_client_request_duration, self._host)
        self._sent = _ByMethod(metrics.rest_client_request_size, self._host)
        self._received = _ByMethod(metrics.rest_client_response_size, self._host)
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
        began = stopwatch()
        self._sent[method].observe(len(body) if body else 0)
        try:
            response = await self._transport.request(
                method, path, body, content_type=content_type, timeout=timeout
            )
        except Unavailable as error:
            self._unanswered(method, began, error)
            raise
        self._answered(method, response.status)
        self._durations[method].observe(self._answered_at - began)
        self._received[method].observe(len(response.body))
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
