"""How long plugins take: every call of one cycle in a hundred is timed.

Other cycles pay for a subtraction: timers are put around the plugins' methods when a sampled cycle
begins, and taken off when the next one does. kube-scheduler times one cycle in ten.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from ksched.clock import stopwatch
from ksched.framework.interface import PermitResult, PostFilterResult, PreFilterResult
from ksched.framework.runtime.guard import Hook
from ksched.framework.status import Code, Status
from ksched.metrics import Histogram

EVERY: Final = 100

_SUCCESS: Final = Code.SUCCESS.value
_ERROR: Final = Code.ERROR.value

_Method = Callable[..., Any]


class ExecutionSamples:
    """Times the plugins of one profile.

    What an async method awaits is not in these durations; ``plugin_cycle_blocked_duration`` and
    ``plugin_permit_duration`` have it.

    kube-scheduler: ShouldRecordPluginMetrics, ObservePluginDurationAsync.
    """

    def __init__(self, durations: Histogram) -> None:
        self._durations = durations
        self._methods: list[tuple[Hook, _Method, _Method]] = []
        self._cycles_left = 1

    def add(self, hook: Hook, point: str) -> None:
        """Include a hook; ``point`` is its label."""
        if not hook.is_async:
            timed = _timed(hook.method, hook.plugin, point, self._durations)
            self._methods.append((hook, hook.method, timed))

    def clear(self) -> None:
        """Time nothing any more."""
        for hook, method, _ in self._methods:
            hook.method = method
        self._methods.clear()

    def next_cycle(self) -> None:
        """Begin a cycle."""
        left = self._cycles_left = self._cycles_left - 1
        if left == 0:
            self._cycles_left = EVERY
            for hook, _, timed in self._methods:
                hook.method = timed
        elif left == EVERY - 1:
            for hook, method, _ in self._methods:
                hook.method = method


def _timed(method: _Method, plugin: str, point: str, durations: Histogram) -> _Method:
    def timed(*args: Any) -> Any:
        began = stopwatch()
        try:
            result = method(*args)
        except BaseException:
            durations.of(plugin, point, _ERROR).observe(stopwatch() - began)
            raise
        seconds = stopwatch() - began
        if not isinstance(result, Awaitable):
            durations.of(plugin, point, _code(result)).observe(seconds)
        return result

    return timed


def _code(result: object) -> str:
    """Return the status of a call; results without one, as of all nodes at once, are successes."""
    if isinstance(result, PreFilterResult | PostFilterResult | PermitResult):
        result = result.status
    if not isinstance(result, Status):
        return _SUCCESS
    return result.code.value if type(result.code) is Code else _ERROR
