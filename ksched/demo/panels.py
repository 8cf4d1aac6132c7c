"""What the live view shows, as lines of text: one function for each part of the screen."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.style import Style
from rich.text import Text

from ksched.demo.heat_map import BARS, horizontal_bar
from ksched.demo.scoreboard import Entry, Scoreboard
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.groups.states import waits_for
from ksched.queue.places import Place, Statistics
from ksched.scheduling.decisions import Result
from ksched.scheduling.scheduler import Scheduler

ACCENT: Final = "cyan"
FRESH_SECONDS: Final = 1.0

_PLACE_STYLES: Final = {
    "active": "bright_cyan",
    "backoff": "yellow",
    "unschedulable": "red",
    "gated": "magenta",
    "in flight": "green",
    "at Permit": "bright_magenta",
}
_RESULTS: Final = {
    Result.SCHEDULED: ("✔", "green"),
    Result.UNSCHEDULABLE: ("✘", "yellow"),
    Result.ERROR: ("!", "bold red"),
}
_LABEL_WIDTH: Final = 14
_POD_WIDTH: Final = 32
_NODE_WIDTH: Final = 12


class WaitingGroup(NamedTuple):
    """Pods of one application that wait in the same place."""

    app: str
    place: str
    pods: int
    since: float
    message: str


# -- header and footer --------------------------------------------------------------------------


def title_line(left: str, right: str, width: int) -> Text:
    line = Text(f" {left}", no_wrap=True)
    line.truncate(max(0, width - len(right) - 2), overflow="ellipsis")
    line.append(" " * max(1, width - line.cell_len - len(right) - 1))
    line.append(right + " ")
    line.stylize(Style(reverse=True, bold=True))
    return line


def numbers_line(scheduler: Scheduler, board: Scoreboard, cpu: float, width: int) -> Text:
    """The figures that matter most, as many as fit."""
    queue, cache = scheduler.queue.statistics(), scheduler.cache.statistics()
    latency = board.latency()
    waiting = queue.active + queue.backoff + queue.unschedulable + queue.gated
    parts = [
        _figure("nodes", f"{len(scheduler.cache.node_names())}"),
        _figure("placed", f"{cache.pods:,}"),
        _figure("waiting", f"{waiting:,}"),
        _figure("pods/s", f"{board.binds_per_second():.0f}"),
        _figure("p50", milliseconds(latency.p50_seconds)),
        _figure("p99", milliseconds(latency.p99_seconds)),
        _figure("decisions", f"{board.decisions:,}"),
        _figure("cpu", f"{cpu:.0%}"),
    ]
    line = Text(" ", no_wrap=True)
    for part in parts:
        if line.cell_len + part.cell_len + 3 > width:
            break
        line.append(part).append("   ")
    room = width - line.cell_len - 1
    if room >= 12:
        curve = board.bind_curve()[-room:]
        line.append(sparkline(curve), ACCENT)
    return line


def caption_lines(caption: str, chapter: str, width: int, height: int) -> list[Text]:
    badge = f" {chapter} "
    lines = _wrapped(caption, width - 2, indent=len(badge) + 1) or [" " * len(badge)]
    first = Text(" ", no_wrap=True).append(badge, "bold black on yellow")
    first.append(lines[0][len(badge) :], "bold yellow")
    others = [Text(f" {line}", "bold yellow", no_wrap=True) for line in lines[1:height]]
    return [first, *others]


def footer_line(keys: Sequence[tuple[str, str]], hints: Sequence[str], width: int) -> Text:
    """The keys, and as many of the hints as fit."""
    line = Text(" ", no_wrap=True)
    for key, meaning in keys:
        line.append(f" {key} ", "reverse").append(f" {meaning}  ")
    for count in range(len(hints), 0, -1):
        text = "  ".join(hints[:count])
        if line.cell_len + len(text) + 1 <= width:
            line.append(" " * (width - line.cell_len - len(text) - 1)).append(text, "dim")
            break
    return line


# -- queue --------------------------------------------------------------------------------------


def queue_lines(
    queue: Statistics, at_permit: int, wake_ups: Iterable[tuple[str, int]], width: int, height: int
) -> list[Text]:
    """A bar for each place, and below what woke the pods that waited."""
    counts = {
        "active": queue.active,
        "backoff": queue.backoff,
        "unschedulable": queue.unschedulable,
        "gated": queue.gated,
        "in flight": queue.in_flight,
        "at Permit": at_permit,
    }
    lines = []
    room = max(0, width - _LABEL_WIDTH - 6)
    full = max(20, *counts.values())
    for place, count in counts.items():
        style = _PLACE_STYLES[place] if count else "dim"
        line = Text(no_wrap=True)
        line.append(f"{place:<{_LABEL_WIDTH}}{count:>5,} ", style)
        line.append(horizontal_bar(count / full, room), style)
        lines.append(line)
    causes = [cause for cause in wake_ups if cause[1]]
    if causes and height >= len(lines) + 3:
        lines += [Text(), Text("what woke waiting pods", "dim")]
        for cause, count in causes[: height - len(lines)]:
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"{count:>5,} ").append(cause, "dim")
            lines.append(line)
    return lines[:height]


# -- decisions ----------------------------------------------------------------------------------


def decision_lines(board: Scoreboard, now: float, width: int, height: int) -> list[Text]:
    """The latest decisions, the newest on top."""
    lines: list[Text] = []
    for entry in reversed(board.recent):
        if len(lines) == height:
            break
        lines.append(_decision(entry, now - entry.at < FRESH_SECONDS, width))
    return lines


def _decision(entry: Entry, is_fresh: bool, width: int) -> Text:
    decision = entry.decision
    mark, style = _RESULTS[decision.result]
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{mark} ", style)
    name_width = min(_POD_WIDTH, max(12, width // 3))
    line.append(fitted(decision.pod, name_width), "bold" if is_fresh else "")
    if decision.result is Result.SCHEDULED:
        line.append(" → ", "dim")
        line.append(fitted(decision.node_name, _NODE_WIDTH), ACCENT)
        line.append(f" {decision.feasible_nodes:>4} of {decision.evaluated_nodes} nodes fit", "dim")
        line.append(f"  {milliseconds(decision.algorithm_seconds)}", "dim")
    else:
        times = f"{min(entry.times, 99)}×" if entry.times > 1 else ""
        line.append(f"{times:>3} ", "dim").append(decision.message, style)
    line.truncate(width, overflow="ellipsis")
    return line


# -- waiting ------------------------------------------------------------------------------------


def waiting_groups(scheduler: Scheduler, board: Scoreboard) -> list[WaitingGroup]:
    """Who waits and why: pods held at Permit first, then the biggest groups."""
    groups: dict[tuple[str, str], list[tuple[float, str]]] = {}
    held = {one.pod.uid for one in scheduler.waiting}
    pending = scheduler.queue.pending_pods()
    for place, pods in pending.items():
        for queued in pods:
            if queued.uid not in held and (
                place is Place.IN_FLIGHT
                or (place is Place.ACTIVE and queued.uid not in board.messages)
            ):
                continue  # it does not wait, it is being looked at
            where = "at Permit" if queued.uid in held else place.value
            groups.setdefault((_app(queued), where), []).append(
                (_since(queued), _why(scheduler, queued, where, board.messages))
            )
    _forget_departed(scheduler, board)
    found = [
        WaitingGroup(app, place, len(pods), min(since for since, _ in pods), pods[-1][1])
        for (app, place), pods in groups.items()
    ]
    return sorted(found, key=lambda group: (group.place != "at Permit", -group.pods, group.app))


def _forget_departed(scheduler: Scheduler, board: Scoreboard) -> None:
    """Drop messages about pods that were deleted while they waited."""
    if len(board.messages) > 1000:
        gone = [uid for uid in board.messages if scheduler.queue.place_of(uid) is Place.ABSENT]
        for uid in gone:
            del board.messages[uid]


def waiting_lines(
    groups: Sequence[WaitingGroup], now: float, width: int, height: int
) -> list[Text]:
    if not groups:
        return [Text("no waiting pods", "dim")]
    lines: list[Text] = []
    # Reasons get more lines as long as that hides no pod.
    most = min(max(1, height // len(groups)), 3)
    for number, group in enumerate(groups):
        if len(lines) + most > height and number < len(groups):
            left = len(groups) - number
            if lines:
                lines[-1] = Text(f"… and {left + 1} more groups", "dim")
            break
        lines += _waiting(group, now, width, most)
    return lines[:height]


def _waiting(group: WaitingGroup, now: float, width: int, most: int) -> list[Text]:
    head = Text(no_wrap=True)
    count = f"{group.pods}×" if group.pods > 1 else ""
    head.append(f"{count:>5} ").append(fitted(group.app, 12), "bold")
    head.append(f" {fitted(group.place, 13)} ", _PLACE_STYLES.get(group.place, ""))
    head.append(f"{now - group.since:>4.0f}s  ", "dim")
    room = width - head.cell_len
    if room < 10:
        head.truncate(width)
        return [head]
    reason = _reason(group.message, room, most)
    indent = " " * head.cell_len
    lines = [head.append(reason[0]), *(Text(indent + line, no_wrap=True) for line in reason[1:])]
    if len(lines) > most:
        lines = lines[:most]
        lines[-1].append(" …")
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _reason(message: str, width: int, most: int) -> list[str]:
    """Wrap kube-scheduler's message; the least informative parts are dropped if it is too long."""
    without_preemption = message.partition(" preemption: ")[0].rstrip(",")
    reasons_only = without_preemption.partition(" nodes are available: ")[2]
    for text in (message, without_preemption, reasons_only or without_preemption):
        lines = _wrapped(text, width)
        if len(lines) <= most:
            break
    return lines or [""]


def _app(queued: QueuedPodInfo) -> str:
    metadata = queued.pod.pod.metadata
    return metadata.labels.get("app") or metadata.name


def _since(queued: QueuedPodInfo) -> float:
    first = queued.initial_attempt_timestamp
    return queued.timestamp if first is None else first


def _why(scheduler: Scheduler, queued: QueuedPodInfo, place: str, messages: dict[str, str]) -> str:
    if place == "at Permit":
        return "has a node, waits for the rest of its gang"
    if place == "gated":
        group = scheduler.groups.of(queued.uid)
        if group is not None and group.why_gated():
            return f"waiting for pod group {group.key}: {waits_for(group)}"
        gates = ", ".join(gate.name for gate in queued.pod.pod.spec.scheduling_gates or ())
        return f"waiting for scheduling gates: {gates}"
    return messages.get(queued.uid, "")


# -- drawing ------------------------------------------------------------------------------------


def framed(title: str, lines: Sequence[Text], width: int, height: int) -> list[Text]:
    """Put lines into a box of exactly this size."""
    inner = width - 4
    top = Text("╭─ ", "dim", no_wrap=True).append(title, "bold").append(" ", "dim")
    top.append("─" * max(0, width - top.cell_len - 1) + "╮", "dim")
    rows = [top]
    for number in range(height - 2):
        content = lines[number].copy() if number < len(lines) else Text()
        content.truncate(inner, overflow="ellipsis", pad=True)
        rows.append(Text("│ ", "dim", no_wrap=True).append(content).append(" │", "dim"))
    rows.append(Text("╰" + "─" * (width - 2) + "╯", "dim", no_wrap=True))
    return rows


def sparkline(values: Sequence[int]) -> str:
    most = max([*values, 1])
    steps = len(BARS) - 1
    return "".join(BARS[-(-value * steps // most)] for value in values)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def fitted(text: str, width: int) -> str:
    """Cut or fill to a width; a cut is marked."""
    return f"{text[: width - 1]}…" if len(text) > width else f"{text:<{width}}"


def _figure(label: str, value: str) -> Text:
    return Text().append(f"{label} ", "dim").append(value, "bold")


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, indent + 1),
        initial_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
