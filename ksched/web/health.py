"""Health endpoints as in Kubernetes' components: named checks of /healthz, /livez, /readyz."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

Check = Callable[[], str]
"""Returns what is wrong, or an empty string."""

Observe = Callable[[str, str, bool], None]
"""Called with the check, the endpoint, and whether it is healthy."""


class Report(NamedTuple):
    """The response to one health request."""

    is_healthy: bool
    text: str


class Health:
    """The checks of one endpoint, in the order in which they are reported."""

    def __init__(
        self, name: str, checks: Mapping[str, Check], observe: Observe = lambda *_: None
    ) -> None:
        self.name = name
        self._checks = {"ping": _ping, **checks}
        self._observe = observe

    def __contains__(self, check: str) -> bool:
        return check in self._checks

    def report(self, verbose: bool = False, exclude: Collection[str] = ()) -> Report:
        """Run all checks except the excluded; with details on failure or if ``verbose``.

        kube-scheduler: handleRootHealth.
        """
        problems = {
            name: "" if name in exclude else self._run(name, check)
            for name, check in self._checks.items()
        }
        failed = [name for name, problem in problems.items() if problem]
        if not failed and not verbose:
            return Report(True, "ok")
        lines = [_line(name, name in exclude, problem) for name, problem in problems.items()]
        lines.append(f"{self.name} check {'failed' if failed else 'passed'}\n")
        return Report(not failed, "\n".join(lines))

    def _run(self, name: str, check: Check) -> str:
        problem = check()
        self._observe(name, self.name, not problem)
        return problem

    def report_one(self, check: str) -> Report:
        problem = self._checks[check]()
        return Report(not problem, problem or "ok")


def _line(name: str, is_excluded: bool, problem: str) -> str:
    if is_excluded:
        return f"[+]{name} excluded: ok"
    return f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok"


def _ping() -> str:
    return ""
