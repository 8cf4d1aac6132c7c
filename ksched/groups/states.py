"""The state of a group and what it waits for; for metrics, debug pages and ``ksched groups``."""

from __future__ import annotations

from collections.abc import Iterable

from ksched.groups.group import AVAILABLE, BOUND, ELSEWHERE, GATED, LEAVING, Group, MemberState
from ksched.groups.sentences import GROUP_UNSCHEDULABLE

GroupState = str

INCOMPLETE: GroupState = "incomplete"
"""Too few members are available, or the group's object is missing or invalid."""
PENDING: GroupState = "pending"
"""Complete; its group cycle has not run yet."""
SHORT: GroupState = "short"
"""Did not fit in its last group cycle."""
BINDING: GroupState = "binding"
"""Its minimum is placed; the API server has not confirmed all of it."""
PLACED: GroupState = "placed"
ENDED: GroupState = "ended"
"""Its minimum was placed, and members have succeeded since; none is missing."""
BROKEN: GroupState = "broken"
"""Its minimum was placed once, and members are missing now: they failed or were deleted, or their
nodes were. Replacements may exist that do not fit."""

WAITS_FOR_TURN = "its turn in the queue"

STATES: tuple[GroupState, ...] = (INCOMPLETE, PENDING, SHORT, BINDING, PLACED, ENDED, BROKEN)

_NOT_COUNTED: dict[MemberState, str] = {
    GATED: "gated",
    ELSEWHERE: "for another scheduler",
    LEAVING: "being deleted",
}


def state_of(group: Group) -> GroupState:
    terms = group.terms
    if terms is not None and not terms.problem and not group.members and group.succeeded:
        return ENDED if group.succeeded >= terms.minimum else INCOMPLETE
    if group.why_gated():
        return INCOMPLETE
    assert terms is not None
    if group.placed >= terms.minimum and not group.role_needs():
        return PLACED if group.is_bound else BINDING
    if group.need and group.last_reason:
        return BROKEN if group.is_broken else SHORT
    if not group.is_satisfied:
        return PENDING
    ended = group.succeeded + group.unread_ends
    return ENDED if group.placed + ended >= terms.minimum else BROKEN


def waits_for(group: Group) -> str:
    """Return what a group waits for, in one sentence; empty if nothing."""
    state, terms = state_of(group), group.terms
    if terms is None or terms.problem:
        return group.why_gated()
    if state == INCOMPLETE:
        return _missing(group, max(terms.minimum, terms.expected))
    if state == SHORT:
        return _why_rejected(group)
    if state == BINDING:
        return f"{group.counts[BOUND]} of {terms.minimum} are bound"
    if state == BROKEN:
        return f"{_on_nodes(group)}; {_others(group)}"
    return "" if state in (PLACED, ENDED) else WAITS_FOR_TURN


def _on_nodes(group: Group) -> str:
    terms = group.terms
    assert terms is not None
    succeeded = f", {group.succeeded} have succeeded" if group.succeeded else ""
    return f"{group.placed} of {terms.minimum} are on nodes{succeeded}"


def _others(group: Group) -> str:
    """What became of the members that a broken group lacks."""
    if not group.need:
        return "the others failed or are gone"
    return f"the others wait: {_why_rejected(group) or WAITS_FOR_TURN}"


def _why_rejected(group: Group) -> str:
    return group.last_reason.removeprefix(f"{GROUP_UNSCHEDULABLE}, ")


def _missing(group: Group, wanted: int) -> str:
    counts = group.counts
    exist = counts[AVAILABLE] + group.placed + group.finished
    if exist >= wanted:
        return group.why_gated()
    others = [f"{counts[state]} {text}" for state, text in _NOT_COUNTED.items() if counts[state]]
    return f"{exist} of {wanted} pods exist" + (f" ({', '.join(others)})" if others else "")


def count_states(groups: Iterable[Group]) -> dict[GroupState, int]:
    """Count the groups by state; states without groups count 0."""
    counts = dict.fromkeys(STATES, 0)
    for group in groups:
        counts[state_of(group)] += 1
    return counts
