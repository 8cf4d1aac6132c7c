"""The smallest volume that fits each claim of a pod, on many nodes at once.

Volumes are ranked by size. Those that the same nodes can reach form a group, and of a group only
the first few matter: one more than the pod has claims before this one. Groups of the usual kind,
"nodes whose label has this value" (local disks, zones), are looked up by the value of each node's
label, so that a thousand local disks cost one array operation and not a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.api.label_selectors import InvalidSelector, compile_selector
from ksched.api.node_selectors import NodeTerms
from ksched.api.quantity import to_nanos
from ksched.api.storage import PersistentVolumeClaim
from ksched.cache.volumes import VolumeFacts
from ksched.framework import NodeRows
from ksched.framework.plugins.node_matching import matches_terms

Numbers = NDArray[np.int64]

NONE = -1
"""Number of no volume."""


class CannotMatch(Exception):
    """It cannot be told which volumes a claim wants."""


class Candidates(NamedTuple):
    """Volumes that a claim could have, wherever its pod goes."""

    bound: VolumeFacts | None
    """The volume that is meant for the claim already; then no other will do."""
    fitting: list[VolumeFacts]
    """Other volumes, the smallest first."""


def find_candidates(claim: PersistentVolumeClaim, volumes: Mapping[str, VolumeFacts]) -> Candidates:
    """Leave out what does not fit the claim on any node (volume/pv_helpers.go, v1.36)."""
    spec = claim.spec
    request, modes = to_nanos(claim.request), set(spec.access_modes)
    try:
        selector = None if spec.selector is None else compile_selector(spec.selector)
    except InvalidSelector as problem:
        what = "error creating internal label selector for claim"
        raise CannotMatch(f"{what}: {claim.metadata.key}: {problem}") from problem
    bound: VolumeFacts | None = None
    fitting = []
    for facts in volumes.values():
        volume = facts.volume
        offered = volume.spec
        is_taken = offered.claim_ref is not None
        if (
            (is_taken and not volume.is_bound_to(claim))
            or facts.capacity_nanos < request
            or offered.volume_mode != spec.volume_mode
            or offered.volume_attributes_class_name != spec.volume_attributes_class_name
            or volume.metadata.deletion_timestamp is not None
        ):
            continue
        if is_taken:
            bound = facts if bound is None else min(bound, facts, key=_name)
        elif (
            volume.status.phase == "Available"
            and modes.issubset(offered.access_modes)
            and (selector is None or selector.matches(volume.metadata.labels))
        ):
            fitting.append(facts)
    # Names decide between equals, so that a run can be repeated; upstream leaves it to chance.
    fitting.sort(key=lambda facts: (facts.capacity_nanos, _name(facts)))
    return Candidates(bound, fitting)


def _name(facts: VolumeFacts) -> str:
    return facts.volume.metadata.name


class StaticMatching:
    """Chooses volumes for the claims of one pod, one claim after the other.

    On each node a volume goes to one claim at most.
    """

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self._numbers: dict[str, int] = {}
        self._facts: list[VolumeFacts] = []
        self._chosen: list[Numbers] = []

    def facts(self, number: int) -> VolumeFacts:
        return self._facts[number]

    def choose(self, candidates: Candidates) -> Numbers:
        """The number of the volume that a claim gets on each node, or ``NONE``."""
        chosen = self._smallest(candidates.fitting)
        if candidates.bound is not None:
            number = self._number(candidates.bound)
            reachable = self._reachable(candidates.bound.affinity)
            meant = np.where(reachable, number, NONE)
            # A claim that the pod names twice gets its volume once.
            chosen = np.where(self._is_chosen(np.full(len(meant), number)), chosen, meant)
        self._chosen.append(chosen)
        return chosen

    def _smallest(self, fitting: list[VolumeFacts]) -> Numbers:
        """The first volume on each node that it can reach and that is not chosen yet."""
        nobody = len(fitting)
        numbers = np.array([*map(self._number, fitting), NONE], np.int64)
        best = np.full(len(self._nodes), nobody, np.int64)
        depth = len(self._chosen) + 1
        by_value: dict[str, dict[str | None, list[int]]] = {}
        groups: dict[NodeTerms | None, list[int]] = {}
        for rank, facts in enumerate(fitting):
            groups.setdefault(facts.affinity, []).append(rank)
        for affinity, ranks in groups.items():
            simple = _label_values(affinity)
            if simple is None:
                mask = self._reachable(affinity)
                for rank in ranks[:depth]:
                    self._offer(best, np.where(mask, rank, nobody), numbers)
            else:
                key, values = simple
                for value in values:
                    by_value.setdefault(key, {}).setdefault(value, []).extend(ranks[:depth])
        for key, ranks_by_value in by_value.items():
            for ranks_by_node in self._by_label(key, ranks_by_value, depth, nobody):
                self._offer(best, ranks_by_node, numbers)
        return numbers[best]

    def _by_label(
        self,
        key: str,
        ranks_by_value: Mapping[str | None, list[int]],
        depth: int,
        nobody: int,
    ) -> Iterable[Numbers]:
        """For each node the first, the second ... rank of the volumes for its label's value."""
        vocabulary = self._nodes.table.label_column(key).vocabulary
        ranks = np.full((depth, len(vocabulary)), nobody, np.int64)
        for value, of_value in ranks_by_value.items():
            position = vocabulary.find(value)
            if position >= 0:
                first = sorted(of_value)[:depth]
                ranks[: len(first), position] = first
        return ranks[:, self._nodes.label(key).ids]

    def _offer(self, best: Numbers, ranks: Numbers, numbers: Numbers) -> None:
        """Improve the best ranks by others, unless their volumes are chosen on the node."""
        better = ranks < best
        if self._chosen:
            better &= ~self._is_chosen(numbers[ranks])
        best[better] = ranks[better]

    def _is_chosen(self, numbers: Numbers) -> NDArray[np.bool_]:
        taken = np.zeros(len(numbers), np.bool_)
        for earlier in self._chosen:
            taken |= earlier == numbers
        return taken

    def _reachable(self, affinity: NodeTerms | None) -> NDArray[np.bool_]:
        if affinity is None:
            return np.ones(len(self._nodes), np.bool_)
        return matches_terms(affinity, self._nodes)

    def _number(self, facts: VolumeFacts) -> int:
        number = self._numbers.setdefault(facts.volume.metadata.name, len(self._facts))
        if number == len(self._facts):
            self._facts.append(facts)
        return number


def _label_values(affinity: NodeTerms | None) -> tuple[str, frozenset[str | None]] | None:
    """The label and its values, if that is all a volume asks of a node."""
    if affinity is None or len(affinity.terms) != 1:
        return None
    term = affinity.terms[0]
    if term.problems or len(term.requirements) != 1:
        return None
    wanted = term.requirements[0]
    is_range = wanted.above is not None or wanted.below is not None
    if wanted.is_field or is_range or not wanted.inside or None in wanted.values:
        return None
    return wanted.key, wanted.values
