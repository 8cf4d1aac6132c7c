"""Fake plugins with configurable results: accept, reject, wait, raise, return garbage, hang.

    cluster(plugins=[FakePlugin("Moody", filter=unschedulable("not today"))])

A fake has exactly the extension points for which it was given a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo
from ksched.configuration.extension_points import MAY_BE_ASYNC
from ksched.framework import (
    FilterDependsOn,
    Handle,
    PermitResult,
    QueuedPodInfo,
    ScoreDependsOn,
    wait,
)


class Call(NamedTuple):
    """One call of a plugin's method; ``pod`` is a key, both names are empty if there was none."""

    plugin: str
    method: str
    pod: str = ""
    node: str = ""


class After(NamedTuple):
    """A result that an async extension point returns later."""

    seconds: float
    answer: object


NEVER: Final = After(float("inf"), None)
"""The result of an async extension point that never returns."""


class FakePlugin:
    """A plugin with a result for each of its methods; itself a factory.

    A result that is an exception (or a class of them) is raised, a callable is called with the
    method's arguments, an ``After`` is returned later, anything else is returned as it is. A method
    whose first result is an ``After`` is async. ``answers`` may be changed at any time. Calls are
    recorded in ``journal``, which several fakes may share to record their order. Dependencies of
    ``filter_nodes`` and ``score_nodes`` are declared as in any plugin.
    """

    timeout_seconds = 30.0

    def __init__(
        self,
        name: str,
        *,
        journal: list[Call] | None = None,
        filter_depends_on: FilterDependsOn | None = None,
        score_depends_on: ScoreDependsOn | None = None,
        **answers: object,
    ) -> None:
        if unknown := answers.keys() - MAY_BE_ASYNC.keys():
            raise TypeError(f"fake plugin {name}: no such methods: {', '.join(sorted(unknown))}")
        if "reserve" in answers:
            answers.setdefault("unreserve", None)
        self.name = name
        self.answers: dict[str, object] = dict(answers)
        self.journal: list[Call] = [] if journal is None else journal
        self._handle: Handle | None = None
        if filter_depends_on is not None:
            self.filter_depends_on = filter_depends_on
        if score_depends_on is not None:
            self.score_depends_on = score_depends_on
        for method in answers:
            setattr(self, method, self._method(method))

    def __call__(self, args: Any, handle: Handle) -> Self:
        self._handle = handle
        return self

    @property
    def handle(self) -> Handle:
        """The handle passed by the scheduler; only after the plugin was built."""
        assert self._handle is not None
        return self._handle

    def calls(self, method: str = "") -> list[Call]:
        """Return the calls of this plugin, oldest first."""
        return [
            call
            for call in self.journal
            if call.plugin == self.name and method in ("", call.method)
        ]

    def _method(self, method: str) -> Callable[..., object]:
        def answer(*args: Any) -> object:
            self.journal.append(_call(self.name, method, args))
            return self._give(self.answers[method], args)

        async def later(*args: Any) -> object:
            self.journal.append(_call(self.name, method, args))
            after = self.answers[method]
            while isinstance(after, After):
                await (asyncio.Event().wait() if after is NEVER else asyncio.sleep(after.seconds))
                after = after.answer
            return self._give(after, args)

        return later if isinstance(self.answers[method], After) else answer

    def _give(self, answer: object, args: Sequence[Any]) -> object:
        if isinstance(answer, BaseException) or (
            isinstance(answer, type) and issubclass(answer, BaseException)
        ):
            raise answer
        return answer(*args) if callable(answer) else answer


class PermitGate(FakePlugin):
    """Holds every pod at Permit until ``allow`` or ``reject``."""

    def __init__(
        self,
        name: str = "PermitGate",
        *,
        timeout_seconds: float = 60.0,
        journal: list[Call] | None = None,
        **answers: Any,
    ) -> None:
        held = PermitResult(wait(), timeout_seconds)
        super().__init__(name, journal=journal, permit=held, **answers)

    def held(self) -> list[str]:
        """Return the keys of the pods that this gate holds."""
        return [
            waiting.pod.key
            for waiting in self.handle.waiting_pods()
            if self.name in waiting.pending_plugins
        ]

    def allow(self, *keys: str) -> None:
        """Allow pods; all of them if none is named."""
        for waiting in list(self.handle.waiting_pods()):
            if not keys or waiting.pod.key in keys:
                waiting.allow(self.name)

    def reject(self, message: str, *keys: str) -> None:
        """Reject pods; all of them if none is named."""
        for waiting in list(self.handle.waiting_pods()):
            if not keys or waiting.pod.key in keys:
                waiting.reject(self.name, message)


def _call(plugin: str, method: str, args: Iterable[Any]) -> Call:
    pod = node = ""
    for arg in args:
        if isinstance(arg, PodInfo):
            pod = pod or arg.key
        elif isinstance(arg, QueuedPodInfo):
            pod = arg.key
        elif isinstance(arg, NodeInfo):
            node = arg.name
        elif isinstance(arg, str):
            node = arg
    return Call(plugin, method, pod, node)
