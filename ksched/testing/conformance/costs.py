"""What a plugin costs: CPU time per pod at 100 and at 5,000 nodes.

Measured are the calls that a cycle makes: all nodes for the first pod of a template; after that,
where answers are cached, the one node that the pod before was placed on.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from ksched.cache.node_table import NodeRows
from ksched.cache.pod_info import PodInfo
from ksched.framework import CycleState
from ksched.testing.conformance.questions import Questions
from ksched.testing.conformance.report import CheckResult, Cost
from ksched.testing.conformance.subject import Subject
from ksched.testing.conformance.trial import filled, run

NAME: Final = "cost"
FEW, MANY = 100, 5_000
PODS: Final = 5
TOO_LONG_MS: Final = 400.0
"""From so much per pod on, the large cluster is not measured but calculated; after so much in all,
no further pod is measured."""
FIRST_POD_FACTOR: Final = 10
"""The first pod of a template may cost so many times the budget."""


class _Bill(NamedTuple):
    """Milliseconds by method: for the first pod of a template, and for every further one."""

    first: dict[str, float]
    after: dict[str, float]

    def cost(self, nodes: int, factor: float = 1.0) -> Cost:
        first, after = sum(self.first.values()) * factor, sum(self.after.values()) * factor
        return Cost(nodes, round(first, 3), round(after, 3), factor != 1.0)


def check(subject: Subject) -> CheckResult:
    about = f"CPU time per pod at {MANY:,} nodes, at most {subject.budget_ms:g} ms"
    result = CheckResult(NAME, about)
    result.costs = run(_check(subject, result))
    return result


async def _check(subject: Subject, result: CheckResult) -> list[Cost]:
    few = await _bill(subject, FEW)
    if not few.first:
        return []
    result.cases = 2
    costs = [few.cost(FEW)]
    factor = MANY / FEW
    if sum(few.first.values()) * factor > TOO_LONG_MS:
        bill, many = few, few.cost(MANY, factor)
    else:
        bill, factor = await _bill(subject, MANY), 1.0
        many = bill.cost(MANY)
    costs.append(many)
    budget = subject.budget_ms
    if many.next_ms > budget:
        _add(subject, result, bill.after, factor, many.next_ms, budget, "every pod")
    elif many.first_ms > budget * FIRST_POD_FACTOR:
        limit = budget * FIRST_POD_FACTOR
        _add(subject, result, bill.first, factor, many.first_ms, limit, "the first of a template")
    return costs


def _add(
    subject: Subject,
    result: CheckResult,
    bill: dict[str, float],
    factor: float,
    total_ms: float,
    budget_ms: float,
    pods: str,
) -> None:
    method = max(bill, key=lambda name: bill[name])
    own_ms = bill[method] * factor
    text = (
        f"At {MANY:,} nodes the plugin costs {_about(factor)}{total_ms:,.0f} ms of CPU for {pods}, "
        f"{_about(factor)}{own_ms:,.0f} ms of it in {method} ({own_ms * 1000 / MANY:.1f} µs per "
        f"node); the budget is {budget_ms:g} ms. The scheduler would place at most "
        f"{1000 / total_ms:,.1f} pods per second."
    )
    found = subject.finding(NAME, "too slow", method, text, advice=_advice(method))
    result.add(found)


def _about(factor: float) -> str:
    return "about " if factor != 1.0 else ""


def _advice(method: str) -> str:
    if method in ("filter", "score"):
        return (
            f"Answer for all nodes at once: {method}_nodes(state, pod, nodes), a NumPy expression "
            f"over the columns of nodes, with {method}_depends_on declaring what the answers "
            "depend on, so that only nodes that changed are asked about again."
        )
    if method in ("filter_nodes", "score_nodes"):
        point = method.removesuffix("_nodes")
        return (
            f"Declare {point}_depends_on with the narrowest scope that is true: answers are cached "
            "and only changed nodes asked about again. Use the columns of nodes instead of a loop "
            "over nodes.infos; ask a ClassColumn once per value, not once per node."
        )
    return (
        "Do it once per template (template_fact, SKIP_TEMPLATE), or keep counts that follow the "
        "changes (docs/counters.md), instead of looking at all nodes for every pod."
    )


async def _bill(subject: Subject, nodes: int) -> _Bill:
    """The median over some pods; of two runs of each pod the cheaper one."""
    content = subject.cluster(nodes, PODS * 2)
    bills: list[_Bill] = []
    spent_ms = 0.0
    async with filled(subject.target, content) as trial:
        questions = Questions(trial)
        table = trial.snapshot.table
        for pod in _of_different_templates(trial.pods)[:PODS]:
            runs = [await _bill_of(questions, pod, table.all()) for _ in range(2)]
            bills.append(
                _Bill(
                    _cheaper(runs[0].first, runs[1].first), _cheaper(runs[0].after, runs[1].after)
                )
            )
            spent_ms += sum(runs[0].first.values()) + sum(runs[1].first.values())
            if spent_ms > TOO_LONG_MS:
                break
    return _Bill(_median([one.first for one in bills]), _median([one.after for one in bills]))


async def _bill_of(questions: Questions, pod: PodInfo, nodes: NodeRows) -> _Bill:
    state = CycleState()
    first: dict[str, float] = {}
    after: dict[str, float] = {}
    one = nodes.table.some(np.array([0], np.intp))
    asks_filter = questions.filter is not None
    if questions.pre_filter is not None:
        began = time.thread_time()
        status = await questions.prepare(state, pod, {})
        first["pre_filter"] = after["pre_filter"] = (time.thread_time() - began) * 1000
        asks_filter = asks_filter and status.is_success
    entry = questions.filter
    if asks_filter and entry is not None:
        method = "filter_nodes" if entry.is_columnar else "filter"
        first[method] = _timed(_ask(entry, state, pod, nodes))
        after[method] = _timed(_ask(entry, state, pod, one)) if entry.is_cached else first[method]
    score = questions.score
    if score is None:
        return _Bill(first, after)
    if questions.pre_score is not None:
        began = time.thread_time()
        skips = not questions.ready_to_score(state, pod, nodes)
        first["pre_score"] = after["pre_score"] = (time.thread_time() - began) * 1000
        if skips:
            return _Bill(first, after)
    method = "score_nodes" if score.is_columnar else "score"
    first[method] = _timed(_ask(score, state, pod, nodes))
    after[method] = _timed(_ask(score, state, pod, one)) if score.is_cached else first[method]
    if score.normalize is not None:
        raw = np.arange(len(nodes), dtype=np.int64) % 100
        normalize = score.normalize
        first["normalize"] = after["normalize"] = _timed(
            lambda: normalize.call(state, pod, nodes, raw)
        )
    return _Bill(first, after)


def _ask(entry: Any, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Callable[[], object]:
    call = entry.hook.call
    if entry.is_columnar:
        return lambda: call(state, pod, nodes)
    infos = nodes.infos
    return lambda: [call(state, pod, info) for info in infos]


def _timed(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000


def _of_different_templates(pods: list[PodInfo]) -> list[PodInfo]:
    return list({pod.template: pod for pod in pods}.values())


def _cheaper(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {method: min(one[method], other.get(method, one[method])) for method in one}


def _median(bills: list[dict[str, float]]) -> dict[str, float]:
    methods = dict.fromkeys(method for bill in bills for method in bill)
    return {
        method: statistics.median([bill.get(method, 0.0) for bill in bills]) for method in methods
    }
