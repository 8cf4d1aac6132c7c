"""What is counted about the credential programs of all kubeconfigs of the process.

kube-scheduler: incrementCallsMetric, certificateExpirationTracker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ksched.clock import Clock
from ksched.metrics import Metrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

SUCCEEDED: Final = "no_error"
FAILED: Final = "plugin_execution_error"
NOT_FOUND: Final = "plugin_not_found_error"
_ENDED_BY_SIGNAL: Final = -1


class _Certificate(NamedTuple):
    """The first one of a chain, and from when to when it is valid."""

    pem: str
    since: float
    until: float


class ExecMetrics:
    """Counts runs, and knows the certificates that the programs gave."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._calls = metrics.rest_client_exec_plugin_calls
        self._ages = metrics.rest_client_exec_plugin_certificate_rotation_age.of()
        self._clock = clock
        self._certificates: dict[object, _Certificate] = {}
        metrics.add_gauges(self._seconds_left)

    def called(self, code: int, status: str) -> None:
        """A program has run, or could not."""
        self._calls.increment(str(max(code, _ENDED_BY_SIGNAL)), status)

    def renewed(self, program: object, certificate: str) -> None:
        """A program has given a credential; its certificate is empty if that is a token."""
        last = self._certificates.pop(program, None)
        if last is not None and last.pem != certificate:
            self._ages.observe(self._clock.wall() - last.since)
        found = _read(certificate) if certificate else None
        if found is not None:
            self._certificates[program] = found

    def _seconds_left(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        untils = [certificate.until for certificate in self._certificates.values()]
        yield GaugeMetricFamily(
            "rest_client_exec_plugin_ttl_seconds",
            "Seconds until the first certificate of a credential program expires; infinite if "
            "there is none.",
            value=min(untils) - self._clock.wall() if untils else math.inf,
        )


def _read(pem: str) -> _Certificate | None:
    # Loaded only where a program gives certificates.
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(pem.encode())
        since, until = found.not_valid_before_utc, found.not_valid_after_utc
    except (ValueError, x509.InvalidVersion):
        # What uses the credential says what is wrong with it.
        return None
    return _Certificate(pem, since.timestamp(), until.timestamp())
