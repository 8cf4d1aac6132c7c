"""A pod's requests as a column vector, and the nodes' resources as a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.api.pod_resources import is_scalar_resource_name
from ksched.api.quantity import MAX_INT64

Ints = NDArray[np.int64]


class Requests(NamedTuple):
    """Some resources and the amounts that a pod requests."""

    resources: tuple[str, ...]
    amounts: Ints
    """One line per resource, to be compared with a column per node."""
    weights: Ints
    """The weights of the resources in a score."""
    headroom: Ints
    """The largest values to which the amounts can be added within int64."""

    @classmethod
    def of(
        cls, requests: Iterable[tuple[str, int]], weights: Mapping[str, int] | None = None
    ) -> Requests:
        pairs = tuple(requests)
        resources = tuple(resource for resource, _ in pairs)
        amounts = np.array([amount for _, amount in pairs], np.int64)[:, np.newaxis]
        shares = np.array([(weights or {}).get(resource, 1) for resource in resources], np.int64)
        return cls(resources, amounts, shares, MAX_INT64 - amounts)

    def on_top_of(self, used: Ints) -> Ints:
        """Add the pod's amounts to those in use, saturating at int64."""
        total: Ints = np.minimum(used, self.headroom) + self.amounts
        return total

    @classmethod
    def scored(cls, weights: Mapping[str, int], requests: Mapping[str, int]) -> Requests:
        """Select the resources of a score: scalar ones only if the pod requests them."""
        counted = (
            (resource, requests.get(resource, 0))
            for resource in weights
            if requests.get(resource, 0) or not is_scalar_resource_name(resource)
        )
        return cls.of(counted, weights)


def stacked(column: Callable[[str], Ints], resources: Sequence[str], nodes: int) -> Ints:
    """Stack the columns of some resources: a line per resource.

    kube-scheduler: calculateResourceAllocatableRequest.
    """
    columns = [column(resource) for resource in resources]
    return np.array(columns, np.int64) if columns else np.zeros((0, nodes), np.int64)
