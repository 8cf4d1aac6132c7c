"""Durations of a profile's plugins, by extension point."""

from __future__ import annotations

from typing import Final

from ksched.clock import stopwatch
from ksched.configuration.extension_points import ExtensionPoint
from ksched.framework.runtime.execution_samples import ExecutionSamples
from ksched.framework.status import Code
from ksched.metrics import Distribution, Metrics

_SUCCESS: Final = Code.SUCCESS


class ProfileMetrics:
    """Times the extension points of one profile.

    Cycles of a profile never overlap, so ``begin`` and ``end`` need no token; binding cycles do,
    and use ``record``.

    kube-scheduler: MetricAsyncRecorder, observeMetricAsync, FlushMetrics.
    """

    def __init__(self, metrics: Metrics, profile: str) -> None:
        self._durations = metrics.framework_extension_point_duration
        self._permit_waits = metrics.permit_wait_duration
        self._cycle_blocked = metrics.plugin_cycle_blocked_duration
        self._permit_calls = metrics.plugin_permit_duration
        self.executions = ExecutionSamples(metrics.plugin_execution_duration)
        self._profile = profile
        self._succeeded: dict[ExtensionPoint, Distribution] = {}
        self._point: ExtensionPoint | None = None
        self._began = 0.0

    def begin(self, point: ExtensionPoint) -> None:
        self._point = point
        self._began = stopwatch()

    def end(self, code: Code = _SUCCESS) -> None:
        """Record the extension point that was begun, if it was not ended yet."""
        point = self._point
        if point is not None:
            self._point = None
            # Looked up here, five times per cycle, rather than by another call.
            series = self._succeeded.get(point) if code is _SUCCESS else None
            if series is None:
                series = self._series(point, code)
            series.observe(stopwatch() - self._began)

    def record(self, point: ExtensionPoint, code: Code, began: float) -> None:
        """Record an extension point that took from ``began`` (on the stopwatch) until now."""
        self._series(point, code).observe(stopwatch() - began)

    def _series(self, point: ExtensionPoint, code: Code) -> Distribution:
        series = self._succeeded.get(point) if code is _SUCCESS else None
        if series is None:
            series = self._durations.of(point.label, code.value, self._profile)
            if code is _SUCCESS:
                self._succeeded[point] = series
        return series

    def permit_waited(self, code: Code, seconds: float) -> None:
        """Record how long a pod was held at Permit, and the outcome."""
        self._permit_waits.of(code.value).observe(seconds)

    def permit_called(self, plugin: str, code: Code, seconds: float) -> None:
        """Record duration and outcome of an async Permit call."""
        self._permit_calls.of(plugin, code.value, self._profile).observe(seconds)

    def cycle_blocked(self, plugin: str, point: ExtensionPoint, seconds: float) -> None:
        """Record how long the cycle waited for an async plugin."""
        self._cycle_blocked.of(plugin, point.label, self._profile).observe(seconds)
