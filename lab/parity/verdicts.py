"""When two decisions about one pod are the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from lab.parity.kube_scheduler_log import Scores

_DYNAMIC_RESOURCES = "DynamicResources"
_NO_CLAIMS = "no new claims to deallocate, "
_FAILED_POST_FILTER = ". not found"


class Outcome(Struct, frozen=True):
    """What became of a pod: a node, or the message of its condition PodScheduled.

    ``scores`` is empty when fewer than two nodes were feasible.
    """

    node: str = ""
    message: str = ""
    scores: Scores = {}

    @property
    def totals(self) -> dict[str, int]:
        return {node: sum(by_plugin.values()) for node, by_plugin in self.scores.items()}

    @property
    def best(self) -> list[str]:
        """The nodes that may be chosen."""
        if not self.scores:
            return [self.node]
        totals = self.totals
        return sorted(node for node, total in totals.items() if total == max(totals.values()))


class Decision(Struct, frozen=True):
    """What both made of one pod, and what it hung on (see ``influences``)."""

    theirs: Outcome
    ours: Outcome
    influences: frozenset[str] = frozenset()


class GangDecision(Struct, frozen=True):
    """What both made of the members of one gang, in their order."""

    theirs: Sequence[Outcome]
    ours: Sequence[Outcome]


def differences(theirs: Outcome, ours: Outcome) -> list[str]:
    """What is not the same in kube-scheduler's outcome and in ours, a line each; mostly nothing."""
    theirs, ours = comparable(theirs, ours)
    if bool(theirs.node) != bool(ours.node):
        return ["only one of the two found a node"]
    if not theirs.node:
        return [] if theirs.message == ours.message else ["the messages differ"]
    found = []
    if ours.node not in theirs.best:
        found.append(f"{ours.node} is not among the best: {', '.join(theirs.best)}")
    for node in sorted(theirs.scores.keys() | ours.scores.keys()):
        their_scores, our_scores = theirs.scores.get(node), ours.scores.get(node)
        if their_scores != our_scores:
            found.append(f"the scores of {node} differ: {their_scores} and {our_scores}")
    return found


def difference(where: str, pod: Mapping[str, Any], decision: Decision) -> str:
    """Everything that helps to find out why two decisions differ, or nothing if they do not."""
    found = differences(decision.theirs, decision.ours)
    if not found:
        return ""
    lines = [
        f"{where}: {found[0]}",
        *found[1:],
        f"pod: {json.dumps(pod)}",
        *("kube-scheduler: " + line for line in describe(decision.theirs)),
        *("ksched:         " + line for line in describe(decision.ours)),
    ]
    return "\n".join(lines)


def describe(outcome: Outcome) -> list[str]:
    """An outcome for people, a line per node."""
    if not outcome.node:
        return [f"not scheduled: {outcome.message}"]
    lines = [f"bound to {outcome.node}"]
    for node, total in sorted(outcome.totals.items(), key=lambda item: (-item[1], item[0])):
        lines.append(f"  {total:5} {node}  {json.dumps(outcome.scores[node])}")
    return lines


def comparable(theirs: Outcome, ours: Outcome) -> tuple[Outcome, Outcome]:
    """Set aside what only kube-scheduler's DynamicResources adds (docs/deviations.md)."""
    # Its PostFilter fails after a rejection at PreFilter, and preemption is not tried.
    if theirs.message.endswith(_FAILED_POST_FILTER):
        message = ours.message.removesuffix(_FAILED_POST_FILTER).partition(" preemption: ")[0]
        message = message.removesuffix(".") + _FAILED_POST_FILTER
        ours = msgspec.structs.replace(ours, message=message)
    return _without_devices(theirs), _without_devices(ours)


def _without_devices(outcome: Outcome) -> Outcome:
    scores = {
        node: {plugin: score for plugin, score in by_plugin.items() if plugin != _DYNAMIC_RESOURCES}
        for node, by_plugin in outcome.scores.items()
    }
    return Outcome(outcome.node, outcome.message.replace(_NO_CLAIMS, ""), scores)
