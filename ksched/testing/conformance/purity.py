"""Nothing that a plugin is given may be changed by asking it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from ksched.cache.node_info import NodeInfo
from ksched.cache.node_table import NodeTable
from ksched.cache.pod_info import PodInfo
from ksched.framework import CycleState
from ksched.testing.conformance.questions import Question, Questions
from ksched.testing.conformance.report import CheckResult
from ksched.testing.conformance.subject import Subject
from ksched.testing.conformance.trial import run, watched

NAME: Final = "purity"
ADVICE: Final = (
    "Work on copies (array.copy(), dict(labels)). What a pod's attempt has to remember goes into "
    "the CycleState at pre_filter or pre_score; what outlives it belongs to reserve and unreserve."
)
WRITES_STATE: Final = frozenset(("pre_filter", "pre_score"))

_encode = msgspec.msgpack.Encoder(order="sorted").encode


def check(subject: Subject) -> CheckResult:
    result = CheckResult(NAME, "asking changes nothing: pods, nodes, columns, cycle state")
    run(_check(subject, result))
    return result


async def _check(subject: Subject, result: CheckResult) -> None:
    async with watched(subject.target, subject.cluster()) as trial:
        table = trial.snapshot.table

        @contextmanager
        def around(
            question: Question, state: CycleState, pod: PodInfo, infos: Sequence[NodeInfo]
        ) -> Iterator[None]:
            before = fingerprint(question.method, state, pod, infos, table)
            yield
            result.cases += 1
            after = fingerprint(question.method, state, pod, infos, table)
            for part in {**before, **after}:
                if before.get(part) != after.get(part):
                    text = f"The call changed {part}, which other plugins and later pods read too."
                    found = subject.finding(
                        NAME,
                        "impure",
                        question.method,
                        text,
                        pod=question.pod,
                        node=question.node or _node_of(part),
                        advice=ADVICE,
                    )
                    result.add(found)
                    return

        questions = Questions(trial, around)
        for pod in trial.pods:
            await questions.about(pod)


def fingerprint(
    method: str,
    state: CycleState,
    pod: PodInfo,
    infos: Sequence[NodeInfo],
    table: NodeTable,
) -> dict[str, object]:
    """The values that may not change, by their names in findings."""
    parts: dict[str, object] = {
        f"the object of pod {pod.key}": _encode(pod.pod),
        f"the template of pod {pod.key}": (
            _encode((pod.template.labels, pod.template.spec)),
            dict(pod.template.requests),
        ),
    }
    if method not in WRITES_STATE:
        for key, value in state._data.items():
            parts[f'"{key}" of the cycle state'] = _outline(value)
        parts["the plugins to be skipped"] = (
            frozenset(state.skip_filter),
            frozenset(state.skip_score),
        )
    for info in infos:
        parts[f"the object of node {info.name}"] = _encode(info.node)
        parts[f"what node {info.name} offers"] = (tuple(info.allocatable), dict(info.images))
        parts[f"what is used of node {info.name}"] = (
            tuple(info.requested),
            info.non_zero_cpu,
            info.non_zero_memory,
            dict(info.used_ports),
        )
        parts[f"the pods of node {info.name}"] = frozenset(info.pods)
    if len(infos) != 1:
        parts |= _columns(table)
    return parts


def _columns(table: NodeTable) -> dict[str, object]:
    count, names = len(table), table.axis.values
    columns: dict[str, Any] = {
        "pod_count": table.pod_count,
        "allowed_pods": table.allowed_pods,
        "unschedulable": table.unschedulable,
        "uses_host_ports": table.uses_host_ports,
        "non_zero_requested": table.non_zero,
    }
    for position, name in enumerate(names[: len(table.requested)]):
        columns[f'requested("{name}")'] = table.requested[position]
        columns[f'allocatable("{name}")'] = table.allocatable[position]
    found: dict[str, object] = {
        f"the column {name}": array[..., :count].tobytes() for name, array in columns.items()
    }
    found["the column taints"] = table.all().taints.ids.tobytes()
    return found


def _outline(value: object) -> object:
    """What a change of which is a change of the value: content of containers, else identity."""
    if isinstance(value, dict):
        return {key: _outline(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_outline(one) for one in value]
    if isinstance(value, set | frozenset):
        return frozenset(value)
    if isinstance(value, str | int | float | bytes | bool | None):
        return value
    return id(value)


def _node_of(part: str) -> str:
    _, found, name = part.partition("node ")
    return name.split()[0] if found else ""
