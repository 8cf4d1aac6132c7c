"""An async method is cancelled at every one of its awaits, and leaves nothing behind.

The tasks are made here rather than in a task group, because a group waits without limit for a
method that swallows its cancellation.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, NamedTuple

from ksched.configuration.extension_points import MAY_BE_ASYNC
from ksched.framework import CycleState, Diagnosis
from ksched.framework.runtime.guard import DEFAULT_TIMEOUT_SECONDS, PluginFailure
from ksched.framework.runtime.waiting_pods import CANCEL_SECONDS
from ksched.framework.untrusted_values import safe_error_text
from ksched.testing.builders import make_pod
from ksched.testing.conformance.determinism import told
from ksched.testing.conformance.placements import Placement, placements
from ksched.testing.conformance.report import CheckResult
from ksched.testing.conformance.reservations import Ledger
from ksched.testing.conformance.subject import Subject
from ksched.testing.conformance.trial import Trial, run, watched

NAME: Final = "cancellation"
AFTER_PLACEMENT: Final = (
    "reserve",
    "permit",
    "pre_bind_pre_flight",
    "pre_bind",
    "bind",
    "post_bind",
)
METHODS: Final = tuple(method for method, may_be_async in MAY_BE_ASYNC.items() if may_be_async)
MAX_AWAITS: Final = 12
PODS: Final = 3

SWALLOWED_ADVICE: Final = (
    "Let asyncio.CancelledError pass: no bare except, no except BaseException, no return in a "
    "finally; clean up in finally and do not wait there. The scheduler cancels when the pod is "
    "deleted or preempted, at shutdown, and when its lease is lost."
)
TASKS_ADVICE: Final = (
    "Await what you start, in an asyncio.TaskGroup inside the method, so that it ends with it; or "
    "start it with handle.tasks.start_soon, and it ends with the plugin."
)


class Outcome(NamedTuple):
    """What became of one call that was cancelled at one of its awaits."""

    awaits: int
    was_cancelled: bool
    """Whether the call got as far as the await at which it was to be cancelled."""
    problem: str = ""
    tasks: tuple[str, ...] = ()
    raised: BaseException | None = None


def check(subject: Subject) -> CheckResult:
    result = CheckResult(NAME, "cancelled at every await: it ends, nothing stays reserved")
    run(_check(subject, result))
    return result


async def _check(subject: Subject, result: CheckResult) -> None:
    async with watched(subject.target, subject.cluster()) as trial:
        for method in METHODS:
            if hasattr(trial.plugin, method):
                await _check_method(subject, result, trial, method)


async def _check_method(subject: Subject, result: CheckResult, trial: Trial, method: str) -> None:
    chosen: list[tuple[Placement, tuple[Any, ...]]] = []
    async for placed in placements(trial, PODS):
        arguments: tuple[Any, ...] | None = tuple(placed)
        if method == "pre_filter":
            arguments = (CycleState(), placed.pod, trial.snapshot)
        elif method == "post_filter":
            arguments = await _rejected(trial)
        if arguments is not None:
            chosen.append((placed, arguments))
    for placed, arguments in chosen:
        for at in range(1, MAX_AWAITS + 1):
            ledger = await Ledger.before(trial, placed)
            outcome = await _cancelled_at(trial.plugin, method, arguments, at)
            if outcome is None:
                return
            _judge(subject, result, placed, method, outcome)
            if method in AFTER_PLACEMENT and hasattr(trial.plugin, "unreserve"):
                await _release(subject, result, ledger, method, outcome)
            if not outcome.was_cancelled or outcome.problem:
                break


def _judge(
    subject: Subject,
    result: CheckResult,
    placed: Placement,
    method: str,
    outcome: Outcome,
) -> None:
    if isinstance(outcome.raised, OSError | TimeoutError):
        raised = safe_error_text(outcome.raised)
        note = f"{method} raised {raised}: only the awaits before that were cancelled"
        if note not in result.notes:
            result.notes.append(note)
    result.cases += outcome.was_cancelled
    where = f"await {outcome.awaits}"
    about: dict[str, Any] = {"pod": placed.pod.key, "node": placed.node_name}
    if outcome.was_cancelled and outcome.problem:
        text = f"Cancelled at {where}, the call {outcome.problem}."
        fault = "swallowed cancellation"
        result.add(subject.finding(NAME, fault, method, text, advice=SWALLOWED_ADVICE, **about))
    if outcome.tasks:
        text = f"Cancelled at {where}, the call left tasks behind: {', '.join(outcome.tasks)}."
        result.add(
            subject.finding(NAME, "tasks left behind", method, text, advice=TASKS_ADVICE, **about)
        )


async def _release(
    subject: Subject, result: CheckResult, ledger: Ledger, method: str, outcome: Outcome
) -> None:
    ledger.release()
    if outcome.was_cancelled:
        what = f"{method}, cancelled at await {outcome.awaits}, and unreserve"
        await ledger.compare(subject, result, method, what)


async def _rejected(trial: Trial) -> tuple[CycleState, Any, Diagnosis] | None:
    """What PostFilter is called with: a pod that fits nowhere."""
    huge = make_pod("huge").req(cpu="5000").priority(2000).obj()
    pod, state = trial.scheduler.cache.pod_info(huge), CycleState()
    try:
        status, _, _ = await trial.pipeline.run_pre_filter(state, pod)
        if status.is_success:
            fit = await trial.pipeline.find_nodes_that_fit(state, pod)
            if fit.diagnosis is not None:
                return state, pod, fit.diagnosis
    except PluginFailure:
        pass
    return None


async def _cancelled_at(
    plugin: Any, method: str, arguments: tuple[Any, ...], at: int
) -> Outcome | None:
    """Call a method and cancel it at one of its awaits; ``None`` if it is not async."""
    before = asyncio.all_tasks()
    try:
        answer = getattr(plugin, method)(*arguments)
    except Exception:  # noqa: BLE001 - what raises at once cannot be cancelled; ``life`` tells it
        return None
    if not inspect.isawaitable(answer):
        return None
    steps = _Steps(answer, at)
    loop = asyncio.get_running_loop()
    task = loop.create_task(_drive(steps))
    steps.on_cancel = task.cancel
    seconds = getattr(plugin, "timeout_seconds", DEFAULT_TIMEOUT_SECONDS)
    await _until(task, steps, seconds)
    if not task.done():
        # It waits for something that does not come: the deadline cancels it, as in a cycle.
        steps.was_cancelled = True
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_SECONDS)
    problem, raised = "", None
    if not task.done():
        problem = f"went on for more than {CANCEL_SECONDS:g} s"
        steps.is_abandoned = True
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_SECONDS)
    elif not task.cancelled():
        raised = task.exception()
        if raised is not None:
            problem = f"raised {safe_error_text(raised)} instead of letting the cancellation pass"
        else:
            problem = f"answered {told(task.result())} as if nothing had happened"
    left = await _left_behind(plugin, before | {task}, seconds)
    return Outcome(steps.awaits, steps.was_cancelled, problem, left, raised)


async def _until(task: asyncio.Task[Any], steps: _Steps, seconds: float) -> None:
    """Wait for the end of a call; once it is cancelled it has no more than ``CANCEL_SECONDS``."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while not task.done() and loop.time() < until:
        if steps.was_cancelled:
            await asyncio.wait([task], timeout=CANCEL_SECONDS)
            return
        waiting = loop.create_future()
        steps.told = waiting
        await asyncio.wait(
            [task, waiting],
            timeout=until - loop.time(),
            return_when=asyncio.FIRST_COMPLETED,
        )
        waiting.cancel()


async def _left_behind(
    plugin: Any, known: set[asyncio.Task[Any]], seconds: float
) -> tuple[str, ...]:
    """Tasks that a call started and that do not end by themselves; they are cancelled.

    Those of ``handle.tasks`` have an owner.
    """
    owned = f"{getattr(plugin, 'name', '')}: "
    new = asyncio.all_tasks() - known
    left = {task for task in new if not task.get_name().startswith(owned)}
    if left:
        _, left = await asyncio.wait(left, timeout=seconds)
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=CANCEL_SECONDS)
    return tuple(sorted(getattr(task.get_coro(), "__qualname__", "?") for task in left))


async def _drive(steps: _Steps) -> Any:
    return await steps


class _Steps:
    """Awaits something await by await, and cancels its own task at one of them."""

    def __init__(self, awaitable: Awaitable[Any], cancel_at: int) -> None:
        self._awaitable = awaitable
        self._cancel_at = cancel_at
        self.awaits = 0
        self.was_cancelled = False
        self.is_abandoned = False
        """Set for a call that does not end: it is not resumed any more."""
        self.on_cancel: Callable[[], object] = _nothing
        self.told: asyncio.Future[None] | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        inner: Any = self._awaitable.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                waits_for = inner.send(None) if thrown is None else inner.throw(thrown)
            except StopIteration as end:
                return end.value
            self.awaits += 0 if self.was_cancelled else 1
            if self.awaits == self._cancel_at and not self.was_cancelled:
                self.was_cancelled = True
                self.on_cancel()
                if self.told is not None and not self.told.done():
                    self.told.set_result(None)
            thrown = None
            try:
                yield waits_for
            except BaseException as problem:
                if self.is_abandoned or isinstance(problem, GeneratorExit):
                    _close(inner)
                    raise
                thrown = problem


def _close(inner: Any) -> None:
    try:
        inner.close()
    except RuntimeError:
        # It ignored that too.
        return


def _nothing() -> None:
    return
