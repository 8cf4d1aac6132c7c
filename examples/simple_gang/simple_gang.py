"""Pods of a gang are bound together or not at all: each is held at Permit until all are there.

A pod joins by two labels, ``example.com/gang`` and ``example.com/gang-size``. README.md says what
this cannot do.
"""

from __future__ import annotations

from typing import Any

from ksched.framework import (
    SUCCESS,
    CycleState,
    Handle,
    PermitResult,
    PodInfo,
    Snapshot,
    Status,
    unresolvable,
    wait,
)

GANG = "example.com/gang"
SIZE = "example.com/gang-size"


class SimpleGang:
    name = "SimpleGang"

    def __init__(self, args: Any, handle: Handle) -> None:
        self._handle = handle
        self._seconds = float((args or {}).get("seconds", 60))
        """How long a member holds its place for the others."""

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        size = pod.labels.get(SIZE, "1")
        is_number = size.isascii() and size.isdecimal() and int(size) > 0
        return SUCCESS if is_number else unresolvable(f"{SIZE}: {size} is no size")

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | PermitResult:
        others = self._others(pod)
        if len(others) + 1 < int(pod.labels.get(SIZE, "1")):
            return PermitResult(wait(), self._seconds)
        for member in others:
            member.allow(self.name)
        return SUCCESS

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """A member gives its place back, and so do those that wait for it."""
        for member in self._others(pod):
            member.reject(self.name, f"gang member {pod.name} lost its place")

    def _others(self, pod: PodInfo) -> list[Any]:
        """The members that are held; a pod without a gang has none."""
        gang = pod.labels.get(GANG)
        return [
            waiting
            for waiting in (self._handle.waiting_pods() if gang else ())
            if waiting.pod.namespace == pod.namespace
            and waiting.pod.labels.get(GANG) == gang
            and waiting.pod.uid != pod.uid
        ]
