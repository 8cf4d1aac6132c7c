"""In a dry run a filter returns what it would return if the pods had really moved.

Preemption removes pods from a copy of a node and runs the filters again. A plugin that counts pods
at PreFilter must follow by ``add_pod`` and ``remove_pod``, or victims are evicted in vain.
"""

from __future__ import annotations

from typing import Final

from ksched.cache.pod_info import PodInfo
from ksched.framework import SUCCESS, CycleState, Status
from ksched.framework.runtime.guard import PluginFailure
from ksched.testing.conformance.determinism import told
from ksched.testing.conformance.questions import Questions
from ksched.testing.conformance.report import CheckResult
from ksched.testing.conformance.subject import Subject
from ksched.testing.conformance.trial import Trial, run, watched

NAME: Final = "dry runs"
ADVICE: Final = (
    "What pre_filter counted no longer holds when a pod is taken off a node. Keep the count under "
    "a key of the cycle state whose value has clone(), and follow the pods in add_pod and "
    "remove_pod; or count at filter, from the node that is passed."
)


def check(subject: Subject) -> CheckResult:
    result = CheckResult(NAME, "a pod taken off a node for preemption counts no longer")
    run(_check(subject, result))
    return result


async def _check(subject: Subject, result: CheckResult) -> None:
    async with watched(subject.target, subject.cluster()) as trial:
        questions = Questions(trial)
        if questions.filter is None:
            return
        for pod in trial.pods[:12]:
            for info in trial.snapshot.table.infos[:12]:
                for victim in list(info.pods.values())[:1]:
                    supposed = await _supposed(trial, questions, pod, victim, info.name)
                    if supposed is None:
                        continue
                    real = await _real(trial, questions, pod, victim, info.name)
                    result.cases += 1
                    if real is not None and supposed != real:
                        _add(subject, result, pod, info.name, victim, supposed, real)


def _add(
    subject: Subject,
    result: CheckResult,
    pod: PodInfo,
    node: str,
    victim: PodInfo,
    supposed: Status,
    real: Status,
) -> None:
    text = (
        f"Without pod {victim.key} on the node, the filter says something else in a dry run than "
        "when the pod is really gone."
    )
    found = subject.finding(
        NAME,
        "dry run differs",
        "filter",
        text,
        pod=pod.key,
        node=node,
        answers=(f"dry run {told(supposed)}", f"really {told(real)}"),
        advice=ADVICE,
    )
    result.add(found)


async def _supposed(
    trial: Trial, questions: Questions, pod: PodInfo, victim: PodInfo, node: str
) -> Status | None:
    """Filter as preemption does: on copies of the node and of the state."""
    state = CycleState()
    if not (await questions.prepare(state, pod, {})).is_success:
        return None
    info = trial.snapshot.get(node)
    assert info is not None
    copy, copied = info.clone(), state.clone()
    try:
        copy.remove_pod(victim.uid)
        for port in victim.template.host_ports:
            copy.used_ports.pop(port, None)
        if hasattr(trial.plugin, "remove_pod"):
            trial.plugin.remove_pod(copied, pod, victim, copy)
        nodes = trial.snapshot.overlay([copy]).all()
        return _first(list(questions.verdicts(copied, pod, nodes)))
    except PluginFailure as failed:
        return failed.status


async def _real(
    trial: Trial, questions: Questions, pod: PodInfo, victim: PodInfo, node: str
) -> Status | None:
    """In a snapshot without the pod, from PreFilter on."""
    row, snapshot = trial.snapshot.table.rows[node], trial.snapshot
    snapshot.forget(victim, row)
    try:
        state = CycleState()
        status = await questions.prepare(state, pod, {})
        if status.is_skip:
            return SUCCESS
        if not status.is_success:
            return None
        nodes = snapshot.table.some(snapshot.order[snapshot.order == row])
        return _first(list(questions.verdicts(state, pod, nodes)))
    finally:
        snapshot.assume(victim, row)


def _first(verdicts: list[tuple[object, Status]]) -> Status:
    return verdicts[0][1]
