"""Durations of plugin calls: which cycles and which calls are measured, and with which labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ksched.framework.interface import PermitResult, PreFilterResult
from ksched.framework.runtime.execution_samples import EVERY, ExecutionSamples
from ksched.framework.runtime.guard import Hook, PluginFailure
from ksched.framework.status import SUCCESS, Code, Status, unschedulable
from ksched.metrics import Metrics
from ksched.testing.builders import make_pod
from ksched.testing.harness import cluster


class Plugin:
    name = "Odd"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def ask(self, *args: Any) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def later(self, *args: Any) -> Any:
        return self.answer


def sampled(answer: Any, method: str = "ask") -> tuple[Hook, ExecutionSamples, Metrics]:
    metrics, plugin = Metrics(), Plugin(answer)
    hook = Hook(plugin, getattr(plugin, method), "Filter")
    samples = ExecutionSamples(metrics.plugin_execution_duration)
    samples.add(hook, "Filter")
    return hook, samples, metrics


def count(metrics: Metrics, status: str, plugin: str = "Odd", point: str = "Filter") -> int:
    return metrics.plugin_execution_duration.of(plugin, point, status).count


def test_one_cycle_in_a_hundred_is_measured() -> None:
    hook, samples, metrics = sampled(SUCCESS)
    for _ in range(3 * EVERY):
        samples.next_cycle()
        hook.call()
        hook.call()
    assert count(metrics, "Success") == 2 * 3


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (SUCCESS, "Success"),
        (unschedulable("full"), "Unschedulable"),
        (PreFilterResult(unschedulable("full")), "Unschedulable"),
        (PermitResult(Status(Code.WAIT), 5.0), "Wait"),
        (np.zeros(3), "Success"),
        (7, "Success"),
        (Status("nonsense"), "Error"),  # type: ignore[arg-type]
    ],
)
def test_status_is_that_of_the_answer(answer: Any, status: str) -> None:
    hook, samples, metrics = sampled(answer)
    samples.next_cycle()
    assert hook.call() is answer
    assert count(metrics, status) == 1


def test_call_that_raises_is_an_error_and_stays_one() -> None:
    hook, samples, metrics = sampled(ZeroDivisionError("boom"))
    samples.next_cycle()
    with pytest.raises(PluginFailure, match="boom"):
        hook.call()
    assert count(metrics, "Error") == 1


async def test_async_methods_are_measured_elsewhere() -> None:
    hook, samples, metrics = sampled(SUCCESS, "later")
    samples.next_cycle()
    assert await hook.acall() is SUCCESS
    assert not list(metrics.plugin_execution_duration.family().samples)


async def test_plugins_of_a_scheduler_are_measured() -> None:
    metrics = Metrics()
    async with cluster(nodes=2, metrics=metrics, check_declarations=False) as c:
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()
    assert count(metrics, "Success", "NodeResourcesFit") == 1
    assert count(metrics, "Success", "NodeResourcesFit", "Score") == 1
