"""The report as text, for a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from ksched.explain.text_tables import counted, table
from ksched.shadow.report import Difference, Finding, Outcome, Summary

EXAMPLES: Final = 5
MEANINGS: Final = {
    Outcome.SAME_NODE: "same node",
    Outcome.EQUAL_SCORE: "a node of equal score: chosen at random among the best",
    Outcome.REJECTED_ALIKE: "no node fits, same reasons",
    Outcome.NOMINATION: "preemption had chosen the node before",
    Outcome.SAMPLING: "best of the nodes that were looked at, not of all",
    Outcome.STATE_LAG: "decided alike on a state a moment away",
    Outcome.CONFIGURATION: "decided alike with another configuration",
    Outcome.DIFFERENT: "different, and no cause found",
}


def render(summary: Summary, *, wide: bool = False) -> str:
    parts = [_headline(summary)]
    if summary.decisions:
        parts.append(_outcomes(summary))
    parts += [_finding(one) for one in summary.findings]
    parts += _differences(summary.differences, wide=wide)
    if summary.not_judged:
        rows = [("NOT JUDGED", "WHY"), *((str(n), why) for why, n in summary.not_judged.items())]
        parts.append(table(rows, right_to=1))
    parts += [f"note: {one}" for one in summary.notes]
    return "\n\n".join(parts)


def line(difference: Difference) -> str:
    """One difference as it is seen."""
    who = f" {difference.blamed}:" if difference.blamed else ""
    return (
        f"{difference.pod}: live {difference.live}, shadow {difference.shadow} "
        f"({difference.outcome.value}){who} {difference.why}".rstrip()
    )


def _headline(summary: Summary) -> str:
    if not summary.decisions:
        return "no decisions were judged"
    share = 100 * summary.agreeing / summary.decisions
    text = (
        f"{counted(summary.decisions, 'decision')} judged, {summary.agreeing} alike ({share:.1f} %)"
    )
    real = summary.outcomes.get(Outcome.DIFFERENT.value, 0)
    configured = summary.outcomes.get(Outcome.CONFIGURATION.value, 0)
    if not real and not configured:
        return f"{text}; every difference has a cause outside of the scheduler's choice"
    return f"{text}; {configured} by configuration, {real} different without a known cause"


def _outcomes(summary: Summary) -> str:
    rows = [("DECISIONS", "OUTCOME")]
    rows += [
        (str(summary.outcomes[one.value]), text)
        for one, text in MEANINGS.items()
        if one.value in summary.outcomes
    ]
    return table(rows, right_to=1)


def _finding(finding: Finding) -> str:
    found = " or ".join(finding.configurations)
    return (
        f"The live scheduler of profile {finding.profile} decides as with {found}: "
        f"{counted(finding.explains, 'decision')}, noticed after {finding.noticed_after}."
    )


def _differences(differences: Sequence[Difference], *, wide: bool) -> Iterator[str]:
    by_outcome: dict[Outcome, list[Difference]] = defaultdict(list)
    for one in differences:
        by_outcome[one.outcome].append(one)
    for outcome in reversed(MEANINGS):
        found = by_outcome.get(outcome, [])
        shown = found if wide else found[:EXAMPLES]
        if not shown:
            continue
        rows = [("POD", "LIVE", "SHADOW", "PLUGIN", "WHY")]
        rows += [(one.pod, one.live, one.shadow, one.blamed, one.why) for one in shown]
        more = f"\n({len(found) - len(shown)} more: -o wide)" if len(found) > len(shown) else ""
        yield f"{outcome.value.replace('_', ' ').capitalize()}:\n{table(rows)}{more}"
