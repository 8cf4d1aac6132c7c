"""What a plugin answers about pods and nodes: PreFilter to Normalize, without the other plugins.

The answers are taken over by the runtime's own code, so what is outside the contract raises the
same ``PluginFailure`` as in a cycle.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ksched.cache.node_info import NodeInfo
from ksched.cache.node_table import NodeRows
from ksched.cache.pod_info import PodInfo
from ksched.configuration.extension_points import PRE_ENQUEUE, PRE_FILTER, PRE_SCORE
from ksched.framework import (
    SUCCESS,
    ClassScores,
    CycleState,
    PreFilterResult,
    QueuedPodInfo,
    Status,
)
from ksched.framework.runtime.codes import CodeBook
from ksched.framework.runtime.guard import Hook
from ksched.framework.runtime.score_columns import MAX_RAW_SCORE
from ksched.testing.conformance.trial import Trial


class Question(NamedTuple):
    """One call of a plugin."""

    method: str
    pod: str
    node: str = ""


Answers: TypeAlias = dict[Question, object]
Rows: TypeAlias = NDArray[np.intp]
Around: TypeAlias = Callable[
    [Question, CycleState, PodInfo, Sequence[NodeInfo]], AbstractContextManager[None]
]
"""Entered around every call of the plugin."""


def _unwatched(
    question: Question, state: CycleState, pod: PodInfo, infos: Sequence[NodeInfo]
) -> AbstractContextManager[None]:
    return nullcontext()


class Questions:
    """Asks one plugin of a trial; ``around`` is entered around every call."""

    def __init__(self, trial: Trial, around: Around = _unwatched) -> None:
        self._around = around
        name, framework = trial.name, trial.framework
        self._table = trial.snapshot.table
        self._snapshot = trial.snapshot
        self._plugin = trial.plugin
        self._now = trial.scheduler.clock.now
        self.pre_enqueue = _of(name, framework.hooks[PRE_ENQUEUE])
        self.pre_filter = _of(name, framework.hooks[PRE_FILTER])
        self.filter = next((one for one in framework.filters if one.name == name), None)
        self.pre_score = _of(name, framework.hooks[PRE_SCORE])
        self.score = next((one for one in framework.scores if one.name == name), None)
        self.sort_key = framework.queue_sort if framework.queue_sort.plugin == name else None

    async def about(self, pod: PodInfo, *, backwards: bool = False) -> Answers:
        """All results for a pod; with ``backwards`` the nodes are passed in another order."""
        state = CycleState()
        answers = dict(self._before(pod))
        status = await self.prepare(state, pod, answers)
        every = self._table.all()
        if self.filter is not None and status.is_success:
            for nodes in self._pieces(backwards=backwards):
                answers.update(self.verdicts(state, pod, nodes))
        if self.score is not None and self.ready_to_score(state, pod, every):
            order = np.arange(len(every))[::-1] if backwards else None
            answers.update(self.scores(state, pod, every, order))
        return answers

    async def prepare(self, state: CycleState, pod: PodInfo, answers: Answers) -> Status:
        """Run PreFilter; the status says whether the filter runs."""
        hook = self.pre_filter
        if hook is None:
            return SUCCESS
        question = Question("pre_filter", pod.key)
        with self._around(question, state, pod, self._table.infos):
            result = hook.call(state, pod, self._snapshot)
            if inspect.isawaitable(result):
                result = await hook.finish(result)
        names: frozenset[str] | None = None
        if isinstance(result, PreFilterResult):
            names = result.node_names
            status = hook.status(result.status)
        else:
            status = hook.status(result)
        if not (status.is_success or status.is_skip or status.is_rejected):
            raise hook.contract_violation(status, "SUCCESS, SKIP or a rejection")
        answers[question] = (status, names) if names is not None else status
        return status

    def verdicts(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Iterator[Any]:
        """Answers of the filter about some nodes."""
        entry = self.filter
        assert entry is not None
        book = CodeBook()
        if not entry.is_columnar:
            for info in nodes.infos:
                question = Question("filter", pod.key, info.name)
                with self._around(question, state, pod, [info]):
                    got = entry.hook.call(state, pod, info)
                code = book.number_of(entry.hook, entry.position, got)
                yield question, book.status(code) if code else SUCCESS
            return
        with self._around(Question("filter_nodes", pod.key), state, pod, nodes.infos):
            verdicts = entry.hook.call(state, pod, nodes)
        codes = book.translate(entry.hook, entry.position, verdicts, len(nodes))
        for number, name in enumerate(nodes.names):
            code = 0 if codes is None else int(codes[number])
            yield Question("filter_nodes", pod.key, name), book.status(code) if code else SUCCESS

    def ready_to_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> bool:
        """Run PreScore; False if the plugin skips the pod."""
        hook = self.pre_score
        if hook is None:
            return True
        with self._around(Question("pre_score", pod.key), state, pod, nodes.infos):
            got = hook.call(state, pod, nodes)
        status = hook.status(got)
        if not (status.is_success or status.is_skip):
            raise hook.contract_violation(status, "SUCCESS or SKIP")
        return status.is_success

    def scores(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows, order: Rows | None = None
    ) -> Iterator[Any]:
        """Final scores; a plugin that scores node by node is called in the given order."""
        entry = self.score
        assert entry is not None
        method = "score_nodes" if entry.is_columnar else "score"
        if not entry.is_columnar:
            raw = self._one_by_one(state, pod, nodes.infos, order)
        else:
            with self._around(Question(method, pod.key), state, pod, nodes.infos):
                got = entry.hook.call(state, pod, nodes)
            if isinstance(got, ClassScores):
                rated = entry._rate_classes(got.values, got.ids, len(nodes))
                final = np.zeros(len(nodes), np.int64) + rated
                yield from _by_node(method, pod, nodes, final // max(entry.weight, 1))
                return
            raw = got
        before = raw.copy() if isinstance(raw, np.ndarray) else raw
        last = "normalize" if entry.normalize is not None else method
        with self._around(Question(last, pod.key), state, pod, nodes.infos):
            final = entry.finish(state, pod, nodes, _checked(entry.hook, raw, len(nodes)))
        yield from _by_node(method, pod, nodes, before)
        if entry.normalize is not None:
            yield from _by_node("normalize", pod, nodes, final // max(entry.weight, 1))

    def _one_by_one(
        self, state: CycleState, pod: PodInfo, infos: Sequence[NodeInfo], order: Rows | None
    ) -> NDArray[np.int64]:
        assert self.score is not None
        hook, raw = self.score.hook, np.zeros(len(infos), np.int64)
        for at in range(len(infos)) if order is None else order.tolist():
            question = Question("score", pod.key, infos[at].name)
            with self._around(question, state, pod, [infos[at]]):
                got = hook.call(state, pod, infos[at])
            if not isinstance(got, int) or abs(got) > MAX_RAW_SCORE:
                raise hook.contract_violation(got, "a whole number")
            raw[at] = got
        return raw

    def _before(self, pod: PodInfo) -> Iterator[tuple[Question, object]]:
        """Answers that are given before a pod is tried."""
        if self.pre_enqueue is not None:
            question = Question("pre_enqueue", pod.key)
            with self._around(question, CycleState(), pod, ()):
                got = self.pre_enqueue.call(pod)
            yield question, self.pre_enqueue.status(got)
        if self.sort_key is not None:
            question, queued = Question("sort_key", pod.key), QueuedPodInfo(pod, 0.0)
            with self._around(question, CycleState(), pod, ()):
                yield question, self.sort_key.call(queued)

    def _pieces(self, *, backwards: bool) -> list[NodeRows]:
        """All nodes at once; or every second, then the others."""
        rows = np.arange(len(self._table))
        assert self.filter is not None
        if not backwards:
            return [self._table.all()]
        if not self.filter.is_columnar:
            return [self._table.some(rows[::-1])]
        return [self._table.some(piece) for piece in (rows[1::2], rows[::2]) if len(piece)]


def _of(name: str, hooks: Sequence[Hook]) -> Hook | None:
    return next((hook for hook in hooks if hook.plugin == name), None)


def _checked(hook: Hook, raw: Any, count: int) -> NDArray[np.int64]:
    if type(raw) is not np.ndarray or raw.shape != (count,) or raw.dtype.kind not in "iub":
        raise hook.contract_violation(raw, f"an array of {count} whole numbers")
    return raw.astype(np.int64)


def _by_node(method: str, pod: PodInfo, nodes: NodeRows, scores: Any) -> Iterator[Any]:
    for name, score in zip(nodes.names, scores.tolist(), strict=True):
        yield Question(method, pod.key, name), int(score)


def difference(one: Answers, other: Mapping[Question, object]) -> Question | None:
    """The first question with two answers."""
    for question, answer in one.items():
        if question in other and other[question] != answer:
            return question
    return next((question for question in other if question not in one), None)
