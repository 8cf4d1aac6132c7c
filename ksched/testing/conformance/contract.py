"""Every answer is one that its extension point allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

from ksched.api.objects import Node
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo
from ksched.framework import Action, CycleState, QueuedPodInfo, QueueingHint, Resource
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.untrusted_values import is_interrupt, safe_error_text, safe_repr
from ksched.testing.conformance.questions import Question, Questions
from ksched.testing.conformance.report import CheckResult
from ksched.testing.conformance.subject import Subject
from ksched.testing.conformance.trial import Trial, run, watched

NAME: Final = "contract"
ADVICE: Final = (
    "ksched/framework/interface.py says at each method what it may answer. In a scheduler every "
    "attempt of such a pod ends with an error and is repeated after a pause."
)
POD_RESOURCES: Final = (Resource.POD, Resource.ASSIGNED_POD, Resource.UNSCHEDULABLE_POD)


def check(subject: Subject) -> CheckResult:
    result = CheckResult(NAME, "answers are those that the extension points allow; nothing raises")
    run(_check(subject, result))
    return result


async def _check(subject: Subject, result: CheckResult) -> None:
    asked: list[Question] = []

    @contextmanager
    def around(
        question: Question, state: CycleState, pod: PodInfo, infos: Sequence[NodeInfo]
    ) -> Iterator[None]:
        asked.append(question)
        yield

    async with watched(subject.target, subject.cluster()) as trial:
        questions = Questions(trial, around)
        for pod in trial.pods:
            try:
                await questions.about(pod)
            except PluginFailure as failed:
                _add(subject, result, asked[-1], failed.status.message)
            except Exception as problem:
                if is_interrupt(problem):
                    raise
                _add(subject, result, asked[-1], f"cannot be used: {safe_error_text(problem)}")
        result.cases = len(asked)
        _check_order(subject, result, trial)
        _check_hints(subject, result, trial)


def _add(subject: Subject, result: CheckResult, question: Question, text: str) -> None:
    found = subject.finding(
        NAME,
        "broken contract",
        question.method,
        text,
        pod=question.pod,
        node=question.node,
        advice=ADVICE,
    )
    result.add(found)


def _check_order(subject: Subject, result: CheckResult, trial: Trial) -> None:
    """Keys of any two pods can be compared, and older pods do not come before themselves."""
    if trial.framework.queue_sort.plugin != subject.plugin:
        return
    queued = [QueuedPodInfo(pod, float(number)) for number, pod in enumerate(trial.pods)]
    result.cases += len(queued)
    try:
        sorted(queued, key=trial.plugin.sort_key)
    except Exception as problem:  # noqa: BLE001 - told
        question = Question("sort_key", queued[0].key if queued else "")
        _add(subject, result, question, f"its keys cannot be sorted: {safe_error_text(problem)}")


def _check_hints(subject: Subject, result: CheckResult, trial: Trial) -> None:
    """Queueing hints answer QUEUE or SKIP about every event that they are registered for."""
    if not hasattr(trial.plugin, "events_to_register"):
        return
    nodes = [info.node for info in trial.snapshot.table.infos if info.node is not None]
    for registered in trial.plugin.events_to_register():
        result.cases += 1
        if registered.hint is None:
            continue
        event = registered.event
        for pod in trial.pods[:6]:
            for old, new in _changes(event.resource, event.action, nodes, trial.pods):
                method = f"hint of {event.label}"
                result.cases += 1
                try:
                    got = registered.hint(pod, old, new)
                except Exception as problem:  # noqa: BLE001 - told
                    _add(
                        subject,
                        result,
                        Question(method, pod.key),
                        f"raised {safe_error_text(problem)}",
                    )
                    continue
                if not isinstance(got, QueueingHint):
                    text = f"returned {safe_repr(got)}, wanted a QueueingHint"
                    _add(subject, result, Question(method, pod.key), text)


def _changes(
    resource: str, action: Action, nodes: Sequence[Node], pods: Sequence[PodInfo]
) -> Iterator[tuple[Any, Any]]:
    """Objects before and after, as events bring them; none for kinds that are not in a trial."""
    objects: Sequence[Any] = ()
    if resource == Resource.NODE:
        objects = nodes
    elif resource in POD_RESOURCES:
        objects = [pod.pod for pod in pods]
    for one, other in pairwise(objects[:5]):
        if action & Action.ADD:
            yield None, one
        if action & Action.DELETE:
            yield one, None
        if action & Action.UPDATE:
            yield one, other
