"""The report of a replay as text, for a terminal."""

from __future__ import annotations

from typing import Final

from ksched.explain.text_tables import counted, table
from ksched.journal.replay_report import ReplaySummary

EXAMPLES: Final = 10


def render(summary: ReplaySummary, *, wide: bool = False) -> str:
    parts = [_headline(summary)]
    if summary.causes:
        rows = [("DECISIONS", "PLUGIN", "CAUSE")]
        rows += [(str(one.decisions), one.plugin, one.cause.value) for one in summary.causes]
        parts.append(table(rows, right_to=1))
    shown = summary.differences if wide else summary.differences[:EXAMPLES]
    if shown:
        cells = [("AT", "POD", "RECORDED", "NOW", "PLUGIN", "WHY")]
        cells += [
            (one.at, one.pod, one.recorded, one.replayed, one.plugin, one.detail) for one in shown
        ]
        left = summary.different - len(shown)
        parts.append(table(cells) + (f"\n({left} more: -o wide)" if left else ""))
    if summary.not_judged:
        counts = [("NOT JUDGED", "WHY")]
        counts += [(str(count), why) for why, count in summary.not_judged.items()]
        parts.append(table(counts, right_to=1))
    parts += [f"note: {one}" for one in summary.notes]
    return "\n\n".join(parts)


def _headline(summary: ReplaySummary) -> str:
    if not summary.decisions:
        return "no decisions were judged"
    text = counted(summary.decisions, "decision")
    if summary.different:
        share = 100 * summary.same / summary.decisions
        text += f", {summary.same} the same ({share:.1f} %), {summary.different} different"
    else:
        text += ", all the same"
    if summary.other_feasible:
        text += f"; for {summary.other_feasible} of the same another number of nodes fits"
    return text
