"""Scores by domain: normalized per domain where there are few, otherwise per node."""

from __future__ import annotations

from typing import Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ksched.cache.counters.topology_domains import Ints, TopologyDomains
from ksched.cache.node_table import NodeRows
from ksched.framework.verdicts import ClassScores
from ksched.tuning import FEW_DOMAINS_RATED

ScoreT = TypeVar("ScoreT", int, Ints)


class Normalize(Protocol):
    """Maps a raw score to the final one, given the range of all; works on numbers and arrays."""

    def __call__(self, score: ScoreT, lowest: int, highest: int) -> ScoreT: ...


@overload
def whole(number: float) -> int: ...
@overload
def whole(number: NDArray[np.float64]) -> Ints: ...
def whole(number: float | NDArray[np.float64]) -> int | Ints:
    """Truncate like Go's ``int64()``: a number, or each element of an array."""
    return number.astype(np.int64) if isinstance(number, np.ndarray) else int(number)


def rate_domains(
    topology: TopologyDomains, by_domain: Ints, nodes: NodeRows, normalize: Normalize
) -> Ints | ClassScores:
    """Score nodes by their domains.

    Returns final scores if there are few domains, otherwise raw ones for ``normalize_scores``.
    """
    ids = topology.ids(nodes)
    if len(by_domain) > FEW_DOMAINS_RATED:
        return by_domain.take(ids)
    present = topology.present(ids)
    raw = by_domain.tolist()[: present[-1] + 1]
    scores = {raw[domain] for domain in present}
    lowest, highest = min(scores), max(scores)
    if lowest == highest:
        # Also domains without a node: then nothing is added up node by node.
        return ClassScores([normalize(lowest, lowest, highest)] * len(raw), ids)
    # Most domains have the score of another one.
    final = {score: normalize(score, lowest, highest) for score in scores}
    return ClassScores([final.get(score, 0) for score in raw], ids)


def normalize_scores(scores: Ints, normalize: Normalize) -> Ints:
    """Return the final scores of all nodes."""
    return normalize(scores, int(scores.min()), int(scores.max()))
