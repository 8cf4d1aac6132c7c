"""Containment of plugin failures: a plugin that raises fails its pod's attempt, nothing else.

Every exception is caught where code outside this project is called: here during attempts, in
``registry`` when a package is loaded, in ``queue.pre_enqueue`` and ``queue.hints`` outside of
attempts. Bugs of our own that concern one object are contained by ``unexpected_errors``. The last
resort is ``commands.run``, which logs the exception that ends the process.

This includes more than ``Exception``: a synchronous method cannot be cancelled and must not end the
process, so CancelledError, SystemExit or GeneratorExit from one is a failure like any other
(``framework.untrusted_values``). Return values are checked by the caller; one that raises when it
is read is ``unusable``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

from ksched.configuration.extension_points import FILTER, SCORE
from ksched.errors import KschedError, TookTooLong
from ksched.framework.status import SUCCESS, Code, Status
from ksched.framework.untrusted_values import is_interrupt, is_text, safe_error_text, safe_repr
from ksched.redaction import redact_text

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_SECONDS = 30.0
"""Deadline of an async plugin at one extension point, unless the plugin sets its own
(``timeout_seconds``)."""

DEFAULT_PERMIT_CONCURRENCY = 1024
"""Limit of a plugin's concurrent async Permit calls, unless the plugin sets its own
(``permit_concurrency``)."""

MAX_LOGGED_PROBLEMS = 100
"""How many different problems of one plugin at one extension point are logged."""


class PluginFailure(KschedError):
    """A plugin ended the attempt; carries its status, an ERROR if the plugin broke its contract."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(status.message)


def failure(plugin: str, activity: str, problem: str) -> PluginFailure:
    """Build an ERROR that names activity, plugin and problem, in kube-scheduler's wording."""
    return PluginFailure(Status(Code.ERROR, (f"{activity}: {problem}",), plugin))


class Hook:
    """One plugin's method at one extension point; calls contain its failures."""

    __slots__ = (
        "_constant",
        "_logged",
        "activity",
        "is_async",
        "method",
        "observe_wait",
        "permit_concurrency",
        "permit_wait_seconds",
        "plugin",
        "timeout_seconds",
    )

    def __init__(self, plugin: Any, method: Callable[..., Any], point: str) -> None:
        self.plugin: str = plugin.name
        self.method = method
        self.activity = activity_of(point, self.plugin)
        self.is_async = inspect.iscoroutinefunction(method)
        self.timeout_seconds: float = getattr(plugin, "timeout_seconds", DEFAULT_TIMEOUT_SECONDS)
        self.permit_concurrency: int = getattr(
            plugin, "permit_concurrency", DEFAULT_PERMIT_CONCURRENCY
        )
        self.permit_wait_seconds: float | None = getattr(plugin, "permit_wait_seconds", None)
        self.observe_wait: Callable[[float], None] | None = None
        """Called with the seconds that an async method blocked the cycle."""
        self._logged: set[str] = set()
        self._constant: tuple[object, Sequence[Status]] = ((), ())
        """The last tuple of statuses, and the same attributed to the plugin."""

    def call(self, *args: Any) -> Any:
        """Call a synchronous method; raises ``PluginFailure`` if it raises."""
        try:
            return self.method(*args)
        except PluginFailure:
            raise
        except BaseException as problem:
            if is_interrupt(problem):
                raise
            raise self._failed(problem) from problem

    async def acall(self, *args: Any) -> Any:
        """Call a method that may be async, within its deadline."""
        result = self.call(*args)
        if isinstance(result, Status):
            return result
        if self.is_async or inspect.isawaitable(result):
            return await self.finish(result)
        return result

    def finish(self, result: Awaitable[Any]) -> Awaitable[Any]:
        """Await the result of an async method, within its deadline."""
        observe = self.observe_wait
        return self._in_time(result) if observe is None else self._observed(result, observe)

    async def _observed(self, result: Awaitable[Any], observe: Callable[[float], None]) -> Any:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await self._in_time(result)
        finally:
            observe(loop.time() - began)

    async def _in_time(self, result: Awaitable[Any]) -> Any:
        if self.timeout_seconds == math.inf:
            # What it awaits has a deadline.
            with self:
                return await result
        try:
            async with asyncio.timeout(self.timeout_seconds):
                with self:
                    return await result
        except TimeoutError:
            # The deadline's: a TimeoutError of the plugin is a ``PluginFailure`` by now.
            raise self.late() from None

    def __enter__(self) -> None:
        """Begin to await the result of an async method: ``with hook: answer = await result``.

        Its exceptions become a ``PluginFailure``; the deadline is the caller's.
        """

    def __exit__(
        self, kind: object, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if problem is None or isinstance(problem, PluginFailure) or is_interrupt(problem):
            return
        if isinstance(problem, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is None or task.cancelling():
                return
            # Our task was not cancelled: the plugin awaited something that it cancelled itself.
        elif isinstance(problem, GeneratorExit) and _current_task() is None:
            # An abandoned coroutine is closed outside of its task.
            return
        raise self._failed(problem) from problem

    def late(self) -> PluginFailure:
        """The failure of a method that exceeded its deadline."""
        text = f"no answer within {self.timeout_seconds:g}s"
        self.log_once(text)
        return failure(self.plugin, self.activity, text)

    def _failed(self, problem: BaseException) -> PluginFailure:
        if isinstance(problem, TookTooLong):
            return PluginFailure(Status(Code.UNSCHEDULABLE, (str(problem),), self.plugin))
        # It goes to the pod's condition and Events, where tenants read it.
        text = redact_text(safe_error_text(problem))
        self.log_once(text, problem)
        return failure(self.plugin, self.activity, text)

    def log_once(self, text: str, problem: BaseException | None = None) -> None:
        """Log a problem once: a broken plugin breaks for every pod."""
        if text in self._logged or len(self._logged) >= MAX_LOGGED_PROBLEMS:
            return
        self._logged.add(text)
        log.error(
            "plugin failed",
            extra={"plugin": self.plugin, "activity": self.activity, "err": text},
            exc_info=problem,
        )

    def contract_violation(self, got: object, wanted: str) -> PluginFailure:
        """The failure of a method that returned something outside its contract."""
        if inspect.iscoroutine(got):
            got.close()
        return failure(self.plugin, self.activity, f"returned {safe_repr(got)}, wanted {wanted}")

    def unusable(self, got: object, wanted: str, problem: BaseException) -> PluginFailure:
        """The same, where reading the returned value raised ``problem``."""
        text = redact_text(safe_error_text(problem))
        self.log_once(text, problem)
        text = f"returned {safe_repr(got)} ({text}), wanted {wanted}"
        return failure(self.plugin, self.activity, text)

    def differ(self, one: object, other: object) -> bool:
        """Whether two of a plugin's epochs differ."""
        try:
            return bool(one != other)
        except Exception as problem:
            raise self.unusable(one, "what can be compared", problem) from problem

    def status(self, got: object) -> Status:
        """Check that a plugin returned a status, and attribute it to the plugin."""
        if got is SUCCESS:
            return SUCCESS
        if not isinstance(got, Status):
            raise self.contract_violation(got, "a Status")
        if type(got.code) is not Code:
            raise self.contract_violation(got.code, "a Code")
        reasons = got.reasons
        if reasons and not (isinstance(reasons, tuple) and all(map(is_text, reasons))):
            raise self.contract_violation(reasons, "reasons that are text")
        return (
            got.by(self.plugin)
            if isinstance(got.plugin, str)
            else Status(got.code, reasons, self.plugin)
        )

    def statuses(self, got: Sequence[object]) -> Sequence[Status]:
        """``status`` of each; a plugin's statuses are usually the same constant tuple."""
        constant, signed = self._constant
        if got is constant:
            return signed
        signed = [*map(self.status, got)]
        if isinstance(got, tuple):
            self._constant = got, signed
        return signed


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def activity_of(point: str, plugin: str) -> str:
    """kube-scheduler's words for a failing plugin, which differ by extension point."""
    if point == FILTER.label:
        return f'running "{plugin}" filter plugin'
    if point == SCORE.label:
        return f'running Score plugins: plugin "{plugin}" failed with'
    return f'running {point} plugin "{plugin}"'
