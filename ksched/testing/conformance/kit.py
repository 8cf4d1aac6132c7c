"""All checks of one plugin, in the order in which their findings are worth reading."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ksched.configuration.extension_points import EXTENSION_POINTS
from ksched.errors import ApiError, ConfigError
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.plugin_contract import implementation
from ksched.framework.untrusted_values import safe_error_text
from ksched.testing.conformance import (
    cancellation,
    contract,
    costs,
    declarations,
    determinism,
    dry_runs,
    life,
    purity,
    reservations,
)
from ksched.testing.conformance.report import CheckResult, Report
from ksched.testing.conformance.subject import Subject
from ksched.testing.conformance.target import Args, Target, find_target
from ksched.testing.conformance.trial import run, watched
from ksched.testing.conformance.vocabulary import Vocabulary, vocabulary_of

DEFAULT_NODES: Final = 30
DEFAULT_BUDGET_MS: Final = 20.0
CHECKS: Final[tuple[Callable[[Subject], CheckResult], ...]] = (
    contract.check,
    purity.check,
    determinism.check,
    declarations.check,
    dry_runs.check,
    reservations.check,
    cancellation.check,
    life.check,
)
SLOW_MS: Final = 10.0
"""A plugin that takes this long for 100 nodes is not called thousands of times."""
FEW_NODES: Final = 5
BUILD_ADVICE: Final = (
    "A scheduler whose profile enables the plugin does not start. If it needs arguments, give them "
    "with --args, or args= in check_plugin."
)


class NonConforming(AssertionError):
    """A plugin broke its contract; the text is the report."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(f"\n{report.to_text()}")


def check_plugin(
    plugin: object,
    *,
    args: Args = None,
    seed: int = 0,
    nodes: int = DEFAULT_NODES,
    budget_ms: float = DEFAULT_BUDGET_MS,
) -> Report:
    """Check a plugin on random clusters; raises ``NonConforming`` with the report of all findings.

    ``plugin`` is its class or another factory with a ``name``, or text as ``ksched check-plugin``
    takes it. ``args`` are the arguments of its configuration. Not for use inside a running event
    loop.
    """
    report = examine(find_target(plugin, args), seed=seed, nodes=nodes, budget_ms=budget_ms)
    if not report.is_clean:
        raise NonConforming(report)
    return report


def examine(
    target: Target,
    *,
    seed: int = 0,
    nodes: int = DEFAULT_NODES,
    budget_ms: float = DEFAULT_BUDGET_MS,
) -> Report:
    """Run every check and report, whatever it is."""
    report = Report(target.name, target.shown, [], seed, nodes)
    report.reproduce = (
        f"ksched check-plugin {target.shown}{target.options} --seed {seed} --nodes {nodes}"
    )
    with _quiet():
        words = _build(target, report, seed)
        if words is None:
            return report
        subject = Subject(target, seed, nodes, words, budget_ms)
        cost = _completed(subject, costs.check, report)
        if cost.costs and cost.costs[0].first_ms > SLOW_MS and nodes > FEW_NODES:
            subject = Subject(target, seed, FEW_NODES, words, budget_ms)
            cost.notes.append(f"so slow that the other checks were made with {FEW_NODES} nodes")
        for check in CHECKS:
            if check is life.check and _has_swallowed(report):
                note = "not made: a call that swallows its cancellation would not end"
                report.checks.append(CheckResult(life.NAME, "", notes=[note]))
            else:
                report.checks.append(_completed(subject, check, report))
        report.checks.append(cost)
    _drop_consequences(report)
    return report


def _build(target: Target, report: Report, seed: int) -> Vocabulary | None:
    """Build the plugin once; ``None`` if that is impossible."""
    result = CheckResult("start", "a profile with the plugin can be built", cases=1)
    report.checks.append(result)
    subject = Subject(target, seed, 1)

    async def build() -> Vocabulary:
        async with watched(target, subject.cluster(1, 0)) as trial:
            plugin = trial.plugin
            report.points = [
                point.key for point in EXTENSION_POINTS if implementation(plugin, point)
            ]
            return vocabulary_of(plugin)

    try:
        words = run(build())
    except (ConfigError, PluginFailure) as error:
        text = "A profile that enables the plugin is refused:"
        problems = error.problems if isinstance(error, ConfigError) else (str(error),)
        result.add(
            subject.finding(
                "start", "cannot be built", "", text, answers=problems, advice=BUILD_ADVICE
            )
        )
        return None
    if not report.points:
        text = "It implements no extension point; see ksched/framework/interface.py."
        result.add(subject.finding("start", "does nothing", "", text, advice=BUILD_ADVICE))
        return None
    return words


def _completed(
    subject: Subject, check: Callable[[Subject], CheckResult], report: Report
) -> CheckResult:
    """A check, or why it could not be made; that is a finding unless another one says it."""
    try:
        return check(subject)
    except PluginFailure as failed:
        reason = failed.status.message
    except ApiError:
        # What the embedded API server refuses is a fault of the random cluster.
        raise
    except Exception as problem:  # noqa: BLE001 - told
        reason = safe_error_text(problem)
    name = check.__module__.rpartition(".")[2].replace("_", " ")
    result = CheckResult(name, "could not be finished", cases=1)
    if any(one.check == contract.NAME for one in report.findings):
        result.notes.append(reason)
    else:
        text = f"The check could not be finished: {reason}"
        result.add(subject.finding(name, "not finished", "", text, advice=contract.ADVICE))
    return result


def _has_swallowed(report: Report) -> bool:
    return any(one.fault == "swallowed cancellation" for one in report.findings)


def _drop_consequences(report: Report) -> None:
    """Report a fault once: its consequences in later checks are not further faults."""
    impure = {one.method for one in report.findings if one.fault == "impure"}
    is_unsteady = any(one.check == determinism.NAME for one in report.findings)
    told_before: set[tuple[str, str]] = set()
    for check in report.checks:
        kept = []
        for one in check.findings:
            kind = (one.fault, one.method.removesuffix("_nodes"))
            # A filter that changes its node answers differently the next time, and comparisons of
            # answers say nothing about a plugin whose answers differ anyhow.
            follows = (one.method in impure and one.fault != "impure") or (
                is_unsteady and one.fault in ("false declaration", "dry run differs")
            )
            if not follows and kind not in told_before:
                kept.append(one)
            told_before.add(kind)
        check.findings = kept


@contextmanager
def _quiet() -> Iterator[None]:
    """What a plugin breaks is in the report; the log would say it once more."""
    logger, handler = logging.getLogger("ksched"), logging.NullHandler()
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(handler)
