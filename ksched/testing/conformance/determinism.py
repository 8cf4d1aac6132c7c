"""The same call has the same result, whatever was called before and on whichever instance."""

from __future__ import annotations

from typing import Final

from ksched.framework.status import Status
from ksched.framework.untrusted_values import safe_repr
from ksched.testing.conformance.questions import Answers, Question, Questions, difference
from ksched.testing.conformance.report import CheckResult
from ksched.testing.conformance.subject import Subject
from ksched.testing.conformance.trial import Trial, run, watched

NAME: Final = "determinism"
RANDOM_ADVICE: Final = (
    "The answer may depend on the arguments, the cycle state, the listers and what reserve keeps; "
    "not on random numbers, the time of day, id() or the order of a set. Choices among equal nodes "
    "are the scheduler's, and repeat with --seed."
)
HIDDEN_ADVICE: Final = (
    "The plugin keeps something between calls that changes its answers. Put what belongs to the "
    "attempt into the CycleState (state.write at pre_filter), and what belongs to a placed pod "
    "into reserve, with unreserve taking it back."
)


def check(subject: Subject) -> CheckResult:
    result = CheckResult(NAME, "asked again, in another order and of another instance: the same")
    run(_check(subject, result))
    return result


async def _check(subject: Subject, result: CheckResult) -> None:
    rounds = await _rounds(subject)
    other = (await _rounds(subject))[0]
    first = rounds[0]
    result.cases = sum(map(len, rounds)) + len(other)
    _note_monotony(result, first)
    among_rounds = {
        question.method: (question, again)
        for again in rounds[1:]
        for question in _differences(first, again)
    }
    is_random = {question.method for question in _differences(first, other)}
    for method in dict.fromkeys((*among_rounds, *is_random)):
        if method in is_random:
            question = next(q for q in _differences(first, other) if q.method == method)
            again = other
            text = (
                "Two instances, built alike and asked the same questions in the same order, "
                "answered differently."
            )
            fault, advice = "non-deterministic", RANDOM_ADVICE
        else:
            question, again = among_rounds[method]
            text = (
                "The answer became another one though nothing changed but which questions had been "
                "asked before."
            )
            fault, advice = "hidden state", HIDDEN_ADVICE
        answers = (
            f"first {told(first.get(question))}",
            f"then {told(again.get(question))}",
        )
        found = subject.finding(
            NAME,
            fault,
            method,
            text,
            pod=question.pod,
            node=question.node,
            answers=answers,
            advice=advice,
        )
        result.add(found)


async def _rounds(subject: Subject) -> list[Answers]:
    """Answers of one fresh instance: forwards, backwards, and forwards again."""
    async with watched(subject.target, subject.cluster()) as trial:
        return [
            await ask_all(trial),
            await ask_all(trial, backwards=True),
            await ask_all(trial),
        ]


async def ask_all(trial: Trial, *, backwards: bool = False, pods: int | None = None) -> Answers:
    """What a plugin answers about all pods of a trial."""
    questions, answers = Questions(trial), {}
    chosen = trial.pods[:pods]
    for pod in reversed(chosen) if backwards else chosen:
        answers.update(await questions.about(pod, backwards=backwards))
    return answers


def _differences(one: Answers, other: Answers) -> list[Question]:
    """One question for each method whose answers differ."""
    found: dict[str, Question] = {}
    left = dict(one)
    while (question := difference(left, other)) is not None:
        found.setdefault(question.method, question)
        left = {q: a for q, a in left.items() if q.method not in found}
        other = {q: a for q, a in other.items() if q.method not in found}
    return list(found.values())


def _note_monotony(result: CheckResult, answers: Answers) -> None:
    by_method: dict[str, set[str]] = {}
    for question, answer in answers.items():
        by_method.setdefault(question.method, set()).add(told(answer))
    for method, seen in by_method.items():
        if len(seen) == 1 and method not in ("normalize", "pre_filter", "pre_enqueue"):
            result.notes.append(
                f"{method} answered {next(iter(seen))} in all cases: nothing that it looks for is "
                "in the random cluster. Words of the plugin's module are used as labels; "
                "--args may be missing."
            )


def told(answer: object) -> str:
    if isinstance(answer, Status):
        return f'"{answer.code.value}: {answer.message}"' if answer.message else answer.code.value
    return "nothing" if answer is None else safe_repr(answer)
