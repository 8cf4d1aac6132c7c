"""What a plugin may reach besides the arguments of its methods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ksched.cache.listings import Listings
from ksched.cache.pod_info import PodInfo
from ksched.cache.snapshot import Snapshot
from ksched.clock import Clock


class PodClient(Protocol):
    """The writes a plugin may ask of the API server."""

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        """Bind a pod; raises ``ApiError``."""
        ...


class WaitingPod(Protocol):
    """A pod held at Permit."""

    pod: PodInfo
    node_name: str

    @property
    def pending_plugins(self) -> frozenset[str]: ...

    def allow(self, plugin: str) -> None:
        """Take back this plugin's objection; the pod goes on when no other plugin holds it."""
        ...

    def reject(self, plugin: str, message: str) -> None:
        """Send the pod back to the queue."""
        ...


class EventRecorder(Protocol):
    """Writes Kubernetes events without waiting for them."""

    def event(self, pod: PodInfo, kind: str, reason: str, action: str, note: str) -> None: ...


class Handle(Protocol):
    """Given to every plugin factory; shared by the plugins of a profile."""

    profile_name: str
    clock: Clock
    client: PodClient
    recorder: EventRecorder
    listings: Listings
    """Other objects of the cluster; ``want`` what you need in the constructor."""

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the running cycle; do not keep it."""
        ...

    def get_waiting_pod(self, uid: str) -> WaitingPod | None: ...

    def waiting_pods(self) -> Iterable[WaitingPod]: ...

    def reject_waiting_pod(self, uid: str, message: str) -> bool: ...

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]: ...

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Try these pods again now, if they are waiting."""
        ...


class PluginFactory(Protocol):
    """Builds a plugin from its arguments (a model, a raw mapping, or None) and its handle."""

    def __call__(self, args: Any, handle: Handle) -> Any: ...
