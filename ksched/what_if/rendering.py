"""A prediction as text, for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ksched.explain.text_tables import counted, listed, table
from ksched.what_if.amounts import CPU, amount, percent
from ksched.what_if.prediction import (
    Capacity,
    Cause,
    Departure,
    Eviction,
    Fate,
    Headroom,
    NodeUse,
    Prediction,
    Shortage,
    Staying,
)

BAR: Final = 20
NODES_SHOWN: Final = 20
NAMES_SHOWN: Final = 4
KEPT, ADDED, FREED, FREE = "█", "▒", "░", "·"
DRAWN: Final = (CPU, "memory")
LEGEND: Final = f"requested: {KEPT} before and after  {ADDED} added  {FREED} freed  {FREE} free"


def render(prediction: Prediction, *, wide: bool = False) -> str:
    """Return the whole text; ``wide`` has every pod and every node instead of groups."""
    sections = [
        headline(prediction),
        "\n".join(f"note: {note}" for note in prediction.notes),
        _placed(prediction.placed, wide=wide),
        _pending(prediction.pending),
        _undecided(prediction.undecided),
        _evictions(prediction.evictions),
        _departures(prediction.departures),
        _staying(prediction.staying),
        _nodes(prediction.nodes, wide=wide),
        _headroom(prediction.headroom),
    ]
    if prediction.capacity is not None:
        sections += _capacity(prediction.capacity)
    return "\n\n".join(section for section in sections if section)


def headline(prediction: Prediction) -> str:
    """What was changed, and how it ends, in two lines."""
    what = "; ".join(prediction.changes) or "nothing is changed"
    size = f"{counted(prediction.num_nodes, 'node')}, {counted(prediction.num_pods, 'pod')}"
    placed, pending = len(prediction.placed), len(prediction.pending)
    ends = [f"{counted(len(prediction.fates), 'pod')} to place"]
    if placed:
        ends.append(f"{placed} {_verb(placed, 'get')} a node")
    if pending:
        ends.append(f"{pending} {_verb(pending, 'stay')} pending")
    if prediction.undecided:
        ends.append(f"{len(prediction.undecided)} cannot be predicted")
    if prediction.evictions:
        ends.append(f"{counted(len(prediction.evictions), 'pod')} preempted")
    if prediction.departures:
        ends.append(f"{counted(len(prediction.departures), 'pod')} gone for good")
    return f"what if: {what}\n{size}; {', '.join(ends)}"


def _verb(count: int, verb: str) -> str:
    return f"{verb}s" if count == 1 else verb


# -- pods ---------------------------------------------------------------------------------------


def _placed(fates: Sequence[Fate], *, wide: bool) -> str:
    if not fates:
        return ""
    if wide:
        rows = [["POD", "FROM", "TO", "NEW POD"]]
        rows += [[one.replaces or one.pod, came_from(one), one.after, one.pod] for one in fates]
    else:
        rows = [["WORKLOAD", "PODS", "FROM", "TO"]]
        for workload, members in _by_workload(fates):
            count = str(len(members))
            rows.append([workload, count, origins(members), places(one.after for one in members)])
    return f"Pods that get a node:\n{table(rows)}"


def _pending(fates: Sequence[Fate]) -> str:
    return _by_message("Pods that stay pending:", fates)


def _undecided(fates: Sequence[Fate]) -> str:
    return _by_message("Pods that cannot be predicted:", fates)


def _by_message(title: str, fates: Sequence[Fate]) -> str:
    """One paragraph for pods with the same message, the most frequent first."""
    if not fates:
        return ""
    lines = [title]
    for message, members in grouped_by_message(fates):
        lines.append(f"  {message}")
        rows = [
            ["   ", str(len(own)), workload, f"({origins(own)})"]
            for workload, own in _by_workload(members)
        ]
        lines.append(table(rows, right_to=2))
    return "\n".join(lines)


def grouped_by_message(fates: Sequence[Fate]) -> list[tuple[str, list[Fate]]]:
    by_message: dict[str, list[Fate]] = {}
    for one in fates:
        by_message.setdefault(one.message, []).append(one)
    return sorted(by_message.items(), key=lambda item: (-len(item[1]), item[0]))


def _by_workload(fates: Iterable[Fate]) -> Iterator[tuple[str, list[Fate]]]:
    found: dict[str, list[Fate]] = {}
    for one in fates:
        found.setdefault(one.workload, []).append(one)
    yield from sorted(found.items())


def came_from(fate: Fate) -> str:
    """The node that a pod, or the one that it replaces, is on now."""
    return fate.before or {Cause.PENDING: "pending", Cause.SCALED: "new"}.get(fate.cause, "-")


def origins(fates: Iterable[Fate]) -> str:
    return places(came_from(one) for one in fates)


def places(names: Iterable[str]) -> str:
    """Names with how often each occurs, the most frequent first."""
    counts = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{name} x{count}" if count > 1 else name for name, count in counts]
    return listed(parts, NAMES_SHOWN)


def _evictions(evictions: Sequence[Eviction]) -> str:
    if not evictions:
        return ""
    rows = [["POD", "NODE", "FOR"]]
    rows += [[one.pod, one.node, one.preemptor] for one in evictions]
    return f"Pods that are preempted:\n{table(rows)}"


def _departures(departures: Sequence[Departure]) -> str:
    if not departures:
        return ""
    rows = [["POD", "NODE", "WHY"]]
    rows += [[one.pod, one.node or "-", one.reason] for one in departures]
    return f"Pods that end and are not made again:\n{table(rows)}"


def _staying(staying: Sequence[Staying]) -> str:
    if not staying:
        return ""
    kinds = Counter(one.reason.split()[0] for one in staying)
    parts = [f"{count} of DaemonSets" for kind, count in kinds.items() if kind == "DaemonSet"]
    parts += [counted(count, "mirror pod") for kind, count in kinds.items() if kind == "mirror"]
    return f"Left on the drained nodes: {', '.join(parts)}."


# -- nodes --------------------------------------------------------------------------------------


def _nodes(nodes: Sequence[NodeUse], *, wide: bool) -> str:
    changed = [one for one in nodes if wide or one.is_changed]
    shown = changed if wide else changed[:NODES_SHOWN]
    if not shown:
        return ""
    rows = [["NODE", *(name.upper() for name in DRAWN), "PODS", ""]]
    for one in shown:
        bars = [_bar(one, resource) for resource in DRAWN]
        rows.append([one.node, *bars, pods_changed(one), remark(one)])
    text = f"Nodes before and after ({LEGEND}):\n{table(rows)}"
    hidden, same = len(changed) - len(shown), len(nodes) - len(changed)
    if hidden:
        text += f"\n({counted(hidden, 'node')} more that change: -o wide)"
    if same:
        text += f"\n({counted(same, 'node')} without a change: -o wide)"
    return text


def _bar(use: NodeUse, resource: str) -> str:
    whole = use.allocatable.get(resource, 0)
    before, after = (use.before or {}).get(resource, 0), use.after.get(resource, 0)
    filled, was = (min(_cells(part, whole), BAR) for part in (after, before))
    kept = min(filled, was)
    change = (ADDED if filled > was else FREED) * abs(filled - was)
    bar = (KEPT * kept + change).ljust(BAR, FREE)
    return f"{bar} {percent(before, whole):3d}% → {percent(after, whole):3d}%"


def _cells(part: int, whole: int) -> int:
    return round(BAR * part / whole) if whole else 0


def pods_changed(use: NodeUse) -> str:
    before = (use.before or {}).get("pods", 0)
    return f"{before} → {use.after.get('pods', 0)}"


def remark(use: NodeUse) -> str:
    if use.before is None:
        return "new"
    return "" if use.is_schedulable else "takes no pods"


def _headroom(headroom: Sequence[Headroom]) -> str:
    if not headroom:
        return ""
    rows = [["RESOURCE", "ALLOCATABLE", "FREE", "MOST FREE ON ONE NODE"]]
    rows += [[one.resource, *headroom_cells(one)] for one in headroom]
    return f"Headroom of the nodes that take pods:\n{table(rows)}"


def headroom_cells(one: Headroom) -> list[str]:
    """Allocatable, free, and the most on one node."""
    pairs = (
        (one.allocatable_before, one.allocatable_after),
        (one.free_before, one.free_after),
        (one.largest_before, one.largest_after),
    )
    return [
        " → ".join(dict.fromkeys(amount(one.resource, number) for number in pair)) for pair in pairs
    ]


# -- capacity -----------------------------------------------------------------------------------


def capacity_headline(capacity: Capacity) -> str:
    least = "" if capacity.is_complete else "at least "
    where = f" on {counted(len(capacity.by_node), 'node')}" if capacity.by_node else ""
    return f"{least}{capacity.fits} more of pod {capacity.pod} fit{where}"


def _capacity(capacity: Capacity) -> Iterator[str]:
    text = f"Capacity: {capacity_headline(capacity)}"
    if capacity.runs_out:
        first = capacity.runs_out[0]
        text += f"; what runs out first: {first.reason} ({counted(len(first.nodes), 'node')})"
    yield text
    rows = [["NODES", "REASON", "EXAMPLES"]]
    rows += _shortages(capacity.runs_out)
    rows += [
        [f"{count} never", reason, names] for count, reason, names in _shortages(capacity.never)
    ]
    if len(rows) > 1:
        yield table(rows)
    if capacity.message:
        yield f"The next one: {capacity.message}"


def _shortages(shortages: Sequence[Shortage]) -> list[list[str]]:
    return [[str(len(one.nodes)), one.reason, listed(one.nodes)] for one in shortages]
