"""The extension points after a node was selected: Reserve to PostBind."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple

from ksched.cache.pod_info import PodInfo
from ksched.configuration.extension_points import BIND, PERMIT, POST_BIND, PRE_BIND, RESERVE
from ksched.framework.cycle_state import CycleState
from ksched.framework.interface import PermitResult
from ksched.framework.runtime.framework import Framework
from ksched.framework.runtime.guard import Hook, PluginFailure, failure
from ksched.framework.status import SKIP, SUCCESS, Code, Status, error

WAIT_WITHOUT_TIME = (
    "returned wait() without a time, "
    "wanted PermitResult(wait(), seconds) or permit_wait_seconds on the plugin"
)


async def run_reserve(
    framework: Framework, state: CycleState, pod: PodInfo, node_name: str
) -> Status:
    """Run Reserve in order; the first plugin that does not succeed ends it.

    kube-scheduler: RunReservePluginsReserve.
    """
    for hook in framework.hooks[RESERVE]:
        result = hook.call(state, pod, node_name)
        if result is SUCCESS:
            continue
        if hook.is_async or inspect.isawaitable(result):
            result = await hook.finish(result)
        status = hook.status(result)
        if not status.is_success:
            return status if status.is_rejected else _failed(hook, status)
    return SUCCESS


def run_unreserve(framework: Framework, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Run Unreserve in reverse order, also of plugins whose Reserve did not run.

    kube-scheduler: RunReservePluginsUnreserve.
    """
    for hook in framework.unreserve:
        try:
            hook.call(state, pod, node_name)
        except PluginFailure:
            # Logged by the hook. The other plugins must run all the same.
            continue


class Permission(NamedTuple):
    """The combined result of a pod's synchronous Permit plugins."""

    status: Status = SUCCESS
    waits: Mapping[str, float] = {}
    """The timeout in seconds of each plugin that returned WAIT."""
    calls: Sequence[tuple[Hook, Awaitable[Any] | None]] = ()
    """Async plugins, to be called while the pod is held; with the awaitable, if a synchronous
    method returned one."""


def run_permit(framework: Framework, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
    """Run the synchronous Permit plugins; the first rejection ends it without async calls.

    With WAIT the pod is to be held.

    kube-scheduler: RunPermitPlugins.
    """
    waits: dict[str, float] = {}
    calls: list[tuple[Hook, Awaitable[Any] | None]] = []
    status = SUCCESS
    try:
        for hook in framework.hooks[PERMIT]:
            result = None if hook.is_async else hook.call(state, pod, node_name)
            if hook.is_async or inspect.isawaitable(result):
                calls.append((hook, result))
                continue
            status, timeout_seconds = permit_answer(hook, result)
            if status.is_wait:
                waits[hook.plugin] = timeout_seconds
            elif not status.is_success:
                break
    except PluginFailure as failed:
        status = failed.status
    if not (status.is_success or status.is_wait):
        for _, answer in calls:
            close(answer)
        return Permission(status)
    return Permission(Status(Code.WAIT) if waits or calls else SUCCESS, waits, calls)


def close(answer: Awaitable[Any] | None) -> None:
    """Close an awaitable that will not be awaited, without asyncio's warning."""
    if inspect.iscoroutine(answer):
        answer.close()


def permit_answer(hook: Hook, answer: object) -> tuple[Status, float]:
    """Check the result of a Permit plugin: a status, and with WAIT its timeout in seconds.

    A wait of no time would be rejected at once, and the pod would be retried and rejected for as
    long as the plugin returns it.
    """
    seconds = hook.permit_wait_seconds
    if isinstance(answer, PermitResult):
        seconds = seconds if answer.timeout_seconds is None else answer.timeout_seconds
        answer = answer.status
    status = hook.status(answer)
    if not status.is_wait:
        is_answer = status.is_success or status.is_rejected
        return (status if is_answer else _failed(hook, status)), 0.0
    if seconds is None:
        raise failure(hook.plugin, hook.activity, WAIT_WITHOUT_TIME)
    if not (isinstance(seconds, int | float) and seconds > 0):
        raise hook.contract_violation(seconds, "more than 0 seconds to wait")
    return status, seconds


async def run_pre_bind_pre_flight(
    framework: Framework, state: CycleState, pod: PodInfo, node_name: str
) -> Status:
    """Determine which PreBind plugins have work; SKIP if none has.

    kube-scheduler: RunPreBindPreFlights.
    """
    outcome = SKIP
    for hook in framework.hooks[PRE_BIND]:
        pre_flight = framework.pre_flight.get(hook.plugin)
        if pre_flight is not None:
            result = pre_flight.call(state, pod, node_name)
            if result is SKIP:
                state.skip_pre_bind.add(hook.plugin)
                continue
            status = await _answer(pre_flight, result)
            if status.is_skip:
                state.skip_pre_bind.add(hook.plugin)
                continue
            if not status.is_success:
                return status if status.is_rejected else _failed(pre_flight, status)
        outcome = SUCCESS
    return outcome


async def run_pre_bind(
    framework: Framework, state: CycleState, pod: PodInfo, node_name: str
) -> Status:
    """kube-scheduler: RunPreBindPlugins."""
    for hook in framework.hooks[PRE_BIND]:
        if hook.plugin in state.skip_pre_bind:
            continue
        status = await _answer(hook, hook.call(state, pod, node_name))
        if not status.is_success:
            return status if status.is_rejected else _failed(hook, status)
    return SUCCESS


async def run_bind(framework: Framework, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Bind the pod with the first Bind plugin that does not return SKIP.

    kube-scheduler: RunBindPlugins.
    """
    for hook in framework.hooks[BIND]:
        status = await _answer(hook, hook.call(state, pod, node_name))
        if status.is_skip:
            continue
        if status.is_success or status.is_rejected:
            return status
        return _failed(hook, status)
    return error("every Bind plugin skipped the pod")


async def run_post_bind(
    framework: Framework, state: CycleState, pod: PodInfo, node_name: str
) -> None:
    """Run PostBind plugins; failures do not affect the pod, which is bound.

    kube-scheduler: RunPostBindPlugins.
    """
    for hook in framework.hooks[POST_BIND]:
        try:
            await hook.acall(state, pod, node_name)
        except PluginFailure:
            continue


async def _answer(hook: Hook, result: Any) -> Status:
    """The status that a method returned, or that what it returned is awaited for."""
    if not isinstance(result, Status) and (hook.is_async or inspect.isawaitable(result)):
        result = await hook.finish(result)
    return hook.status(result)


def _failed(hook: Hook, status: Status) -> Status:
    return Status(Code.ERROR, (f"{hook.activity}: {status.message}",), hook.plugin)
