"""A gang of pods gets its nodes together or not at all: a plugin in plain Python.

A pod joins a gang by two labels, its name and its size. Every member gets a node and is held at
Permit; the last to arrive lets all of them go. Then ``pre_bind`` awaits a slow call to somebody
else. Nothing waits for that but the gang: other pods are scheduled and bound meanwhile.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from ksched.framework import (
    SKIP,
    SUCCESS,
    CycleState,
    Handle,
    PermitResult,
    PodInfo,
    Status,
    wait,
)

GANG: Final = "demo.ksched.dev/gang"
SIZE: Final = "demo.ksched.dev/gang-size"
PATIENCE_SECONDS: Final = 60.0
FABRIC_SECONDS: Final = 1.5


class GangPermit:
    """Holds the members of a gang at Permit until all of them are there."""

    name: ClassVar[str] = "GangPermit"

    def __init__(self, args: Any, handle: Handle) -> None:
        self._handle = handle

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | PermitResult:
        gang, size = gang_of(pod)
        held = [one for one in self._handle.waiting_pods() if gang_of(one.pod)[0] == gang]
        if len(held) + 1 < size:
            return PermitResult(wait(), PATIENCE_SECONDS)
        for member in held:
            member.allow(self.name)
        return SUCCESS

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """One member lost its node, so the others give theirs back."""
        gang, size = gang_of(pod)
        for member in self._handle.waiting_pods():
            if size > 1 and gang_of(member.pod)[0] == gang:
                member.reject(self.name, f"gang {gang}: {pod.name} lost its node")

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS if gang_of(pod)[1] > 1 else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Have the gang's nodes wired together; here a pause stands for the call."""
        await self._handle.clock.sleep(FABRIC_SECONDS)
        return SUCCESS


def gang_of(pod: PodInfo) -> tuple[str, int]:
    """The name of a pod's gang and its size; a pod without one is a gang of its own."""
    labels = pod.pod.metadata.labels
    return labels.get(GANG, pod.uid), int(labels.get(SIZE, "1"))
