"""Unreserve undoes what reserve did, may come without it, and may come twice."""

from __future__ import annotations

from typing import Any, Final

from ksched.configuration.extension_points import RESERVE
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.reserve_to_post_bind import run_unreserve
from ksched.framework.untrusted_values import safe_error_text
from ksched.testing.conformance.determinism import ask_all, told
from ksched.testing.conformance.placements import Placement, placements, sweep
from ksched.testing.conformance.questions import Answers, difference
from ksched.testing.conformance.report import CheckResult
from ksched.testing.conformance.subject import Subject
from ksched.testing.conformance.traces import traces
from ksched.testing.conformance.trial import Trial, run, watched

NAME: Final = "reservations"
ADVICE: Final = (
    "unreserve is called whenever anything after reserve fails, is rejected or is cancelled, for "
    "every plugin with reserve, also if its reserve did not run or did not end. Take back by the "
    "pod's UID what is there (pop(uid, None)); raise nothing."
)
PODS_ASKED_ABOUT: Final = 4


def check(subject: Subject) -> CheckResult:
    result = CheckResult(NAME, "unreserve takes back all of reserve; twice or alone does no harm")
    run(_check(subject, result))
    return result


async def _check(subject: Subject, result: CheckResult) -> None:
    async with watched(subject.target, subject.cluster()) as trial:
        if not hasattr(trial.plugin, "reserve"):
            return
        hook = next(hook for hook in trial.framework.hooks[RESERVE] if hook.plugin == trial.name)
        async for placed in placements(trial, 6):
            result.cases += 1
            ledger = await Ledger.before(trial, placed)
            _unreserve(subject, result, trial, placed, "before any reserve")
            try:
                await hook.acall(*placed)
            except PluginFailure as failed:
                text = f"reserve failed: {failed.status.message}"
                result.notes.append(text) if text not in result.notes else None
            _unreserve(subject, result, trial, placed, "after reserve")
            _unreserve(subject, result, trial, placed, "a second time")
            await ledger.compare(subject, result, "reserve", "reserve and unreserve")


def _unreserve(
    subject: Subject, result: CheckResult, trial: Trial, placed: Placement, when: str
) -> None:
    try:
        trial.plugin.unreserve(*placed)
    except Exception as problem:  # noqa: BLE001 - told
        found = subject.finding(
            NAME,
            "unreserve raises",
            "unreserve",
            f"Called {when}, it raised {safe_error_text(problem)}.",
            pod=placed.pod.key,
            node=placed.node_name,
            advice=ADVICE,
        )
        result.add(found)


class Ledger:
    """What a plugin answers and keeps, before something that must leave no trace."""

    def __init__(self, trial: Trial, placed: Placement, answers: Answers) -> None:
        self._trial, self._placed, self._answers = trial, placed, answers
        self._kept = self._traces()

    @classmethod
    async def before(cls, trial: Trial, placed: Placement) -> Ledger:
        return cls(trial, placed, await ask_all(trial, pods=PODS_ASKED_ABOUT))

    async def compare(
        self, subject: Subject, result: CheckResult, method: str, what: str, **more: Any
    ) -> None:
        """Report what is different after ``what``."""
        sweep(self._trial.plugin)
        pod, node = self._placed.pod, self._placed.node_name
        kept = {
            place: value
            for place, value in self._traces().items()
            if self._kept.get(place, _NOTHING) != value
        }
        if kept:
            places = ", ".join(f"{place} = {value!r}" for place, value in list(kept.items())[:3])
            found = subject.finding(
                result.name,
                "leaked reservation",
                method,
                f"After {what} the plugin still keeps {places}.",
                pod=pod.key,
                node=node,
                advice=ADVICE,
            )
            result.add(found)
            return
        after = await ask_all(self._trial, pods=PODS_ASKED_ABOUT)
        question = difference(self._answers, after)
        if question is not None:
            found = subject.finding(
                result.name,
                "leaked reservation",
                method,
                f"After {what} of pod {pod.key}, {question.method} answers differently.",
                pod=question.pod,
                node=question.node,
                answers=(
                    f"before {told(self._answers.get(question))}",
                    f"after {told(after.get(question))}",
                ),
                advice=ADVICE,
            )
            result.add(found)

    def release(self) -> None:
        """Unreserve as the scheduler would, in all plugins."""
        run_unreserve(self._trial.framework, *self._placed)

    def _traces(self) -> dict[str, object]:
        return traces(self._trial.plugin, self._placed.pod, self._placed.node_name)


_NOTHING: Final = object()
