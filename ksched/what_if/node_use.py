"""What the pods of each node request, before and after."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ksched.cache.cache import SchedulerCache
from ksched.cache.node_info import NodeInfo
from ksched.what_if.prediction import Headroom, NodeUse

PODS: Final = "pods"


class NodeState(Struct, frozen=True):
    """One node at one time."""

    allocatable: dict[str, int]
    requested: dict[str, int]
    pods: frozenset[str]
    is_schedulable: bool

    def free(self, resource: str) -> int:
        left = self.allocatable.get(resource, 0) - self.requested.get(resource, 0)
        return max(left, 0) if self.is_schedulable else 0


def node_states(cache: SchedulerCache) -> dict[str, NodeState]:
    """The state of every node, by name."""
    found = {}
    for name in sorted(cache.node_names()):
        info = cache.get_node(name)
        assert info is not None
        found[name] = _state(info)
    return found


def _state(info: NodeInfo) -> NodeState:
    assert info.node is not None
    resources = [name for name in info.axis.values if info.allocatable_of(name)]
    return NodeState(
        allocatable={
            **{name: info.allocatable_of(name) for name in resources},
            PODS: info.allowed_pods,
        },
        requested={**{name: info.requested_of(name) for name in resources}, PODS: len(info.pods)},
        pods=frozenset(info.pods),
        is_schedulable=not info.node.spec.unschedulable,
    )


def node_uses(before: dict[str, NodeState], after: dict[str, NodeState]) -> list[NodeUse]:
    uses = []
    for name, now in after.items():
        was = before.get(name)
        pods = was.pods if was is not None else frozenset()
        uses.append(
            NodeUse(
                node=name,
                is_schedulable=now.is_schedulable,
                allocatable=now.allocatable,
                before=was.requested if was is not None else None,
                after=now.requested,
                pods_in=len(now.pods - pods),
                pods_out=len(pods - now.pods),
            )
        )
    return uses


def headroom(before: dict[str, NodeState], after: dict[str, NodeState]) -> list[Headroom]:
    """One line for every resource that a pod requests somewhere, and for the number of pods."""
    used: dict[str, None] = {}
    for state in (*before.values(), *after.values()):
        used |= dict.fromkeys(name for name, amount in state.requested.items() if amount)
    names = [name for name in used if name != PODS]
    return [
        _headroom(resource, list(before.values()), list(after.values()))
        for resource in (*names, PODS)
    ]


def _headroom(resource: str, before: list[NodeState], after: list[NodeState]) -> Headroom:
    free_before = [state.free(resource) for state in before]
    free_after = [state.free(resource) for state in after]
    return Headroom(
        resource=resource,
        allocatable_before=_allocatable(resource, before),
        allocatable_after=_allocatable(resource, after),
        free_before=sum(free_before),
        free_after=sum(free_after),
        largest_before=max(free_before, default=0),
        largest_after=max(free_after, default=0),
    )


def _allocatable(resource: str, states: list[NodeState]) -> int:
    return sum(one.allocatable.get(resource, 0) for one in states if one.is_schedulable)
