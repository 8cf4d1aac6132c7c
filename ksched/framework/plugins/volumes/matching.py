"""Matches a pod's waiting claims with the smallest available volumes that fit.

Whether there is a volume for each claim is determined for many nodes at once, by counting. Which
one it is matters only on the selected node, and where claims of one class compete that differ in
more than size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.api.label_selectors import InvalidSelector, Selector, compile_selector
from ksched.api.node_selectors import NodeTerms
from ksched.api.objects import Labels
from ksched.api.quantity import to_nanos
from ksched.api.storage import PersistentVolumeClaim
from ksched.framework import NodeRows
from ksched.framework.assumed_volumes import (
    ClassVolumes,
    Ranked,
    VolumeFacts,
    VolumeGroup,
    count_at_least,
)
from ksched.framework.plugins.node_matching import matches_terms

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class CannotMatch(Exception):
    """The volumes that match a claim cannot be determined."""


class Requirements(NamedTuple):
    """What a claim requires of a volume (volume/pv_helpers.go: FindMatchingVolume, v1.36)."""

    claim: PersistentVolumeClaim
    request_nanos: int
    selector: Selector | None
    reserved: Sequence[VolumeFacts]
    """Volumes with a ``claimRef`` to the claim; if there are any, no other is considered."""
    groups: Sequence[VolumeGroup]
    """The groups with other volumes of the right kind."""

    def accepts(self, facts: VolumeFacts) -> bool:
        if facts.capacity_nanos < self.request_nanos:
            return False
        return self.selector is None or self.selector.matches(facts.volume.metadata.labels)


def requirements_of(claim: PersistentVolumeClaim, volumes: ClassVolumes) -> Requirements:
    """Compile the requirements of a claim; raises ``CannotMatch``."""
    spec, request = claim.spec, to_nanos(claim.request)
    try:
        selector = None if spec.selector is None else compile_selector(spec.selector)
    except InvalidSelector as problem:
        what = "error creating internal label selector for claim"
        raise CannotMatch(f"{what}: {claim.metadata.key}: {problem}") from problem
    kind = (spec.volume_mode, spec.volume_attributes_class_name)
    reserved = [
        facts
        for _, facts in sorted(volumes.reserved.get(claim.metadata.key, {}).items())
        if facts.volume.is_bound_to(claim)
        and facts.capacity_nanos >= request
        and kind == (facts.volume.spec.volume_mode, facts.volume.spec.volume_attributes_class_name)
        and facts.volume.metadata.deletion_timestamp is None
    ]
    groups = [
        group
        for (*its_kind, modes), group in volumes.groups.items()
        if tuple(its_kind) == kind and modes.issuperset(spec.access_modes)
    ]
    return Requirements(claim, request, selector, reserved, groups)


# -- many nodes at once -------------------------------------------------------------------------


def find_served(claims: Sequence[Requirements], nodes: NodeRows) -> list[Bools]:
    """Mark, for each claim, the nodes on which there is a volume for it.

    Claims of one class may compete for volumes; the earlier claim gets the smaller one.
    """
    served = [_is_served(wanted, nodes) for wanted in claims]
    rivals: dict[str, list[int]] = {}
    for position, wanted in enumerate(claims):
        if served[position].any():
            rivals.setdefault(wanted.claim.class_name, []).append(position)
    for positions in rivals.values():
        if len(positions) == 1:
            continue
        group = [claims[position] for position in positions]
        if _are_alike(group):
            answers = _share(group, nodes)
        else:
            somewhere = np.logical_or.reduce([served[position] for position in positions])
            answers = _look_at_each(group, nodes, somewhere)
        for position, answer in zip(positions, answers, strict=True):
            served[position] = answer
    return served


def _is_served(wanted: Requirements, nodes: NodeRows) -> Bools:
    """Mark the nodes with a volume for a claim, as if it were the pod's only one."""
    if wanted.reserved:
        return reachable(wanted.reserved[0].affinity, nodes)
    if wanted.selector is None:
        return _count(wanted, nodes) > 0
    served = np.zeros(len(nodes), np.bool_)
    for group in wanted.groups:
        for key, by_value in group.by_label.items():
            values = {
                value for value, ranked in by_value.items() if any(map(wanted.accepts, ranked))
            }
            served |= nodes.label(key).test(values.__contains__)
        for affinity, ranked in group.elsewhere.items():
            if any(map(wanted.accepts, ranked)):
                served |= reachable(affinity, nodes)
    return served


def _count(wanted: Requirements, nodes: NodeRows) -> Ints:
    """Count, per node, the available volumes that are large enough for a claim."""
    count = np.zeros(len(nodes), np.int64)
    for group in wanted.groups:
        for by_value in group.by_label.values():
            count += by_value.count_at_least(wanted.request_nanos, nodes)
        for affinity, ranked in group.elsewhere.items():
            fitting = count_at_least(ranked, wanted.request_nanos)
            if fitting:
                count += fitting * reachable(affinity, nodes)
    return count


def _are_alike(claims: Sequence[Requirements]) -> bool:
    """Whether claims differ only in size."""
    first = claims[0]
    return all(
        not one.reserved and one.selector is None and one.groups == first.groups for one in claims
    )


def _share(claims: Sequence[Requirements], nodes: NodeRows) -> list[Bools]:
    """Serve claims that differ only in size, the smallest first.

    Of the volumes large enough for a claim, those taken by earlier claims are the smallest ones;
    for the next larger claim, as many of them drop out as there are volumes in between.
    """
    answers = []
    taken = np.zeros(len(nodes), np.int64)
    before: Ints | None = None
    for wanted in claims:
        count = _count(wanted, nodes)
        if before is not None:
            taken = np.maximum(taken - (before - count), 0)
        answers.append(count > taken)
        taken = taken + answers[-1]
        before = count
    return answers


def _look_at_each(claims: Sequence[Requirements], nodes: NodeRows, somewhere: Bools) -> list[Bools]:
    answers = [np.zeros(len(nodes), np.bool_) for _ in claims]
    infos = nodes.infos
    for position in np.flatnonzero(somewhere).tolist():
        for answer, match in zip(
            answers, match_on_node(claims, infos[position].labels), strict=True
        ):
            answer[position] = match is not None
    return answers


def reachable(affinity: NodeTerms | None, nodes: NodeRows) -> Bools:
    """Mark the nodes that can reach a volume."""
    if affinity is None:
        return np.ones(len(nodes), np.bool_)
    return matches_terms(affinity, nodes)


# -- one node -----------------------------------------------------------------------------------


def match_on_node(claims: Sequence[Requirements], labels: Labels) -> list[VolumeFacts | None]:
    """Return the volume of each claim on a node with these labels; ``None`` if there is none.

    Claims choose in their order; a ``claimRef`` has precedence over size, and names break ties, so
    that a run is reproducible (kube-scheduler's choice is arbitrary).

    kube-scheduler: findMatchingVolumes.
    """
    chosen: dict[str, VolumeFacts] = {}
    found: list[VolumeFacts | None] = []
    for wanted in claims:
        match = _smallest(wanted, labels, chosen)
        if match is not None:
            chosen[match.name] = match
        found.append(match)
    return found


def _smallest(
    wanted: Requirements, labels: Labels, chosen: dict[str, VolumeFacts]
) -> VolumeFacts | None:
    for facts in wanted.reserved:
        # A claim that the pod names twice gets its volume once.
        if facts.name not in chosen:
            return facts if facts.affinity is None or facts.affinity.matches(labels, "") else None
    firsts = (
        next((one for one in ranked if one.name not in chosen and wanted.accepts(one)), None)
        for group in wanted.groups
        for ranked in _in_reach(group, labels)
    )
    return min(filter(None, firsts), key=lambda one: (one.capacity_nanos, one.name), default=None)


def _in_reach(group: VolumeGroup, labels: Labels) -> Iterator[Ranked]:
    for key, by_value in group.by_label.items():
        yield by_value.get(labels.get(key))
    for affinity, ranked in group.elsewhere.items():
        if affinity is None or affinity.matches(labels, ""):
            yield ranked
