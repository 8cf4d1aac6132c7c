"""An explanation as text, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ksched.explain.explanation import Change, Explanation, NodeVerdict, alike
from ksched.explain.text_tables import counted, listed, table

TOP_NODES: Final = 5


def render(explanation: Explanation, *, wide: bool = False, node: str = "") -> str:
    """Return the whole text.

    ``wide`` has every node instead of groups and the top few, ``node`` the table of one only.
    """
    parts = [headline(explanation)]
    parts += [f"gated by {gate}" for gate in explanation.gates]
    if explanation.nominated_node:
        parts.append(f"nominated to {explanation.nominated_node}")
    parts += [f"note: {note}" for note in explanation.notes]
    sections = ["\n".join(parts)]
    if explanation.message:
        sections.append(explanation.message)
    shown = [one for one in explanation.nodes if not node or one.node == node]
    rejected = [one for one in shown if not one.fits]
    feasible = [one for one in explanation.feasible if one in shown]
    if feasible:
        sections += _scores(feasible, explanation.node, wide=wide)
    if rejected:
        sections.append(_every_node(rejected) if wide or node else _groups(rejected))
    if explanation.preemption is not None:
        victims = listed(explanation.preemption.victims, len(explanation.preemption.victims))
        node = explanation.preemption.node
        sections.append(f"Preemption would evict {victims} from {node} and nominate the pod to it.")
    if not explanation.node and not explanation.feasible and explanation.nodes:
        sections.append(_changes(explanation.changes))
    return "\n\n".join(sections)


def headline(explanation: Explanation) -> str:
    """Where the pod is or fits, and why there."""
    name = f"pod {explanation.pod} (priority {explanation.priority}, {explanation.profile})"
    feasible, count = explanation.feasible, explanation.num_all_nodes
    if explanation.node:
        return f"{name}: on {explanation.node}\n{_why(explanation, feasible)}"
    if not feasible:
        return f"{name}: fits on none of {counted(count, 'node')}"
    best = [one.node for one in feasible if one.total == feasible[0].total]
    where = f"{best[0]} scores best" if len(best) == 1 else f"{len(best)} of them score best alike"
    if len(feasible) == 1:
        where = f"{best[0]} is the only one"
    return f"{name}: fits on {len(feasible)} of {counted(count, 'node')}; {where}"


def _why(explanation: Explanation, feasible: Sequence[NodeVerdict]) -> str:
    """Why a placed pod's node, on the cluster as it is without the pod."""
    node = explanation.node
    own = next((one for one in explanation.nodes if one.node == node), None)
    if own is None:
        return f"node {node} does not exist any more"
    if not own.fits:
        plugins = ", ".join(one.plugin for one in own.rejections)
        return f"it would not be placed on {node} now: {plugins} rejects it"
    others = [one for one in feasible if one.node != node]
    if not others:
        return f"{node} is the only node that fits"
    rival = others[0]
    alike = sum(one.total == own.total for one in others)
    if own.total == rival.total:
        tie = f"like {counted(alike, 'other node')}; one of them was chosen at random"
        return f"{node} scores best with {own.total}, {tie}"
    if own.total > rival.total:
        return (
            f"{node} scores best: {own.total - rival.total} more than {rival.node} "
            f"({_difference(own, rival)})"
        )
    return (
        f"{rival.node} would be chosen now, it scores {rival.total - own.total} more "
        f"({_difference(rival, own)}): the cluster has changed, or another scheduler placed the pod"
    )


def _difference(one: NodeVerdict, other: NodeVerdict) -> str:
    parts = {plugin: score - other.scores.get(plugin, 0) for plugin, score in one.scores.items()}
    ordered = sorted(parts.items(), key=lambda part: -abs(part[1]))
    return ", ".join(f"{plugin} {points:+d}" for plugin, points in ordered if points)


def _scores(feasible: Sequence[NodeVerdict], placed_on: str, *, wide: bool) -> list[str]:
    if not feasible[0].scores:
        return []
    shown = feasible if wide else feasible[:TOP_NODES]
    if not any(one.node == placed_on for one in shown):
        shown = [*shown, *(one for one in feasible if one.node == placed_on)]
    plugins = [name for name in feasible[0].scores if any(one.scores[name] for one in feasible)]
    rows = [["", "NODE", "TOTAL", *plugins]]
    for one in shown:
        mark = "*" if one.node == placed_on else ""
        points = [str(one.scores[name]) for name in plugins]
        rows.append([mark, one.node, str(one.total), *points])
    text = table(rows, right_from=2)
    hidden = len(feasible) - len(shown)
    if hidden:
        text += f"\n({counted(hidden, 'node')} more that fit: -o wide)"
    return [text]


def _groups(rejected: Sequence[NodeVerdict]) -> str:
    """One line for nodes that fail alike, the most frequent first."""
    rows = [["NODES", "PLUGIN", "REASON", "EXAMPLES"]]
    for group in alike(rejected):
        for number, one in enumerate(group.rejections):
            count = str(len(group.nodes)) if not number else "also"
            example = listed(group.nodes) if not number else ""
            rows.append([count, one.plugin or "-", ", ".join(one.reasons), example])
    return table(rows, right_to=1)


def _every_node(rejected: Sequence[NodeVerdict]) -> str:
    rows = [["NODE", "PLUGIN", "REASON"]]
    for one in sorted(rejected, key=lambda one: one.node):
        rows += [
            [one.node if not number else "", reason.plugin or "-", ", ".join(reason.reasons)]
            for number, reason in enumerate(one.rejections)
        ]
    return table(rows)


def _changes(changes: Sequence[Change]) -> str:
    if not changes:
        return "No change of the pod or of one node and no evictions there would make it fit."
    rows = [["CHANGE", "ON", "WHAT"]]
    for one in changes:
        steps = "; ".join(one.steps) if one.kind != "eviction" else _evictions(one.steps)
        doubt = "" if one.is_smallest else " (fewer may do)"
        rows.append([one.kind, listed(one.nodes), f"{steps}{doubt}"])
    return f"Each of these would make it fit:\n{table(rows)}"


def _evictions(steps: Sequence[str]) -> str:
    return f"evict {listed([step.removeprefix('evict ') for step in steps], len(steps))}"
