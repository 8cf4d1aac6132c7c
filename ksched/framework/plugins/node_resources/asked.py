"""Resources a pod asks for as a column, and what nodes have of them as a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.api.pod_resources import is_scalar_resource_name
from ksched.api.quantity import MAX_INT64

Ints = NDArray[np.int64]


class Asked(NamedTuple):
    """Some resources and how much of each a pod asks for."""

    resources: tuple[str, ...]
    amounts: Ints
    """One line per resource, to be compared with a column per node."""
    weights: Ints
    """The shares of the resources in a score."""
    headroom: Ints
    """What can be added to without passing the largest int64."""

    @classmethod
    def of(
        cls, requests: Iterable[tuple[str, int]], weights: Mapping[str, int] | None = None
    ) -> Asked:
        pairs = tuple(requests)
        resources = tuple(resource for resource, _ in pairs)
        amounts = np.array([amount for _, amount in pairs], np.int64)[:, np.newaxis]
        shares = np.array([(weights or {}).get(resource, 1) for resource in resources], np.int64)
        return cls(resources, amounts, shares, MAX_INT64 - amounts)

    def on_top_of(self, used: Ints) -> Ints:
        """What is used together with the pod, up to the largest int64."""
        total: Ints = np.minimum(used, self.headroom) + self.amounts
        return total

    @classmethod
    def scored(cls, weights: Mapping[str, int], requests: Mapping[str, int]) -> Asked:
        """Select the resources that count in a score: scalars only if the pod asks for them."""
        counted = (
            (resource, requests.get(resource, 0))
            for resource in weights
            if requests.get(resource, 0) or not is_scalar_resource_name(resource)
        )
        return cls.of(counted, weights)


def stacked(column: Callable[[str], Ints], resources: Sequence[str], nodes: int) -> Ints:
    """Put the columns of some resources below each other: a line per resource.

    kube-scheduler: calculateResourceAllocatableRequest.
    """
    columns = [column(resource) for resource in resources]
    return np.array(columns, np.int64) if columns else np.zeros((0, nodes), np.int64)
