"""What is counted of requests by those who send them, with the names that the transport knows."""

from __future__ import annotations

from typing import Protocol

from ksched.metrics import Distribution
from ksched.transport import Transport


class Telemetry(Protocol):
    """Counts what a transport cannot see: it is told about by those who send requests."""

    def waits(self, method: str) -> Distribution:
        """How long requests have waited for the rate limit, to be observed by who limits them."""
        ...

    def repeated(self, method: str, status: int) -> None:
        """A second or later try of a request has ended; 0 is no answer."""
        ...


def telemetry_of(transport: Transport) -> Telemetry | None:
    """Return the ``telemetry`` of a transport that counts its requests."""
    return getattr(transport, "telemetry", None)
