"""What a plugin may reach besides the arguments of its methods."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ksched.api.objects import Node
from ksched.cache.dry_run_table import DryRunTable
from ksched.cache.listers import Listers
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo
from ksched.cache.snapshot import Snapshot
from ksched.clock import Clock
from ksched.framework.cycle_state import CycleState
from ksched.framework.status import Status
from ksched.framework.victims import Victims
from ksched.metrics import Metrics


class PodClient(Protocol):
    """The requests a plugin may make of the API server; they raise ``ApiError``."""

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        """Bind a pod."""
        ...

    async def read_volume(self, name: str) -> bytes:
        """Read a PersistentVolume; the answer is its JSON, whole."""
        ...

    async def update_volume(self, name: str, body: bytes) -> bytes:
        """Replace a PersistentVolume, unless it is of another version, and return what is stored.

        ``Conflict`` if somebody wrote since it was read.
        """
        ...

    async def read_claim(self, namespace: str, name: str) -> bytes:
        """Read a PersistentVolumeClaim; the answer is its JSON, whole."""
        ...

    async def update_claim(self, namespace: str, name: str, body: bytes) -> bytes:
        """Replace a PersistentVolumeClaim, like ``update_volume``."""
        ...


class WaitingPod(Protocol):
    """A pod held at Permit, by at least one plugin that answered WAIT.

    A pod whose async Permit is still to answer is no waiting pod yet, unless another plugin waits:
    as in kube-scheduler, a plugin meets the pods that were asked before, not the one it is asked
    about.
    """

    pod: PodInfo
    node_name: str

    @property
    def pending_plugins(self) -> frozenset[str]:
        """The plugins that answered WAIT and did not allow the pod since."""
        ...

    def allow(self, plugin: str) -> None:
        """Take back this plugin's objection; the pod goes on when no other plugin holds it."""
        ...

    def reject(self, plugin: str, message: str) -> None:
        """Send the pod back to the queue."""
        ...


class EventRecorder(Protocol):
    """Writes Kubernetes events without waiting for them."""

    def event(
        self,
        pod: PodInfo,
        kind: str,
        reason: str,
        action: str,
        note: str,
        *,
        related: PodInfo | None = None,
    ) -> None:
        """Record an event about a pod; ``related`` is another one that it has to do with."""
        ...


class ResourceFilters(Protocol):
    """The filters of a profile over an excerpt of the node table, as far as amounts decide."""

    is_complete: bool
    """Whether a node without a rejection here passes all filters. Otherwise there are filters that
    look at more, and the node must be tried on a copy."""

    def judge(self) -> NDArray[np.int32]:
        """By node 0, or the number of the status that the filters would give it.

        Reads the excerpt's ``amounts`` as they are now.
        """
        ...

    def status(self, code: int) -> Status: ...


class Handle(Protocol):
    """Given to every plugin factory; shared by the plugins of a profile."""

    profile_name: str
    clock: Clock
    client: PodClient
    recorder: EventRecorder
    listers: Listers
    """Other objects of the cluster; ``require`` what you need in the constructor, kinds of your own
    too (docs/custom_kinds.md)."""
    rng: random.Random
    """The scheduler's generator: with ``--seed`` its choices repeat."""
    metrics: Metrics

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the running cycle; do not keep it."""
        ...

    def node(self, name: str) -> Node | None:
        """A node as it is now: unlike the snapshot this does not stand still. Also for binding."""
        ...

    def has_pod(self, uid: str) -> bool:
        """Whether a placed pod is still there: not deleted since, and its place not given back."""
        ...

    def get_waiting_pod(self, uid: str) -> WaitingPod | None: ...

    def waiting_pods(self) -> Iterable[WaitingPod]: ...

    def reject_waiting_pod(self, uid: str, message: str) -> bool:
        """Send a pod back that is held at Permit, also by an async call; False if none is."""
        ...

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]: ...

    def nominated_node_name(self, pod: PodInfo) -> str:
        """The node a pod is nominated to, though the API server may not know yet; "" if none."""
        ...

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Try these pods again now, if they are waiting."""
        ...

    # For PostFilter plugins. A dry run works on ``node.clone()`` and ``state.clone()``; the answers
    # are SUCCESS, a rejection, or ERROR if a plugin broke.

    def run_filters_with_nominated_pods(
        self, state: CycleState, pod: PodInfo, node: NodeInfo
    ) -> Status:
        """Run the filters on a (changed) node, with the pods nominated to it and without."""
        ...

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status:
        """Put a pod on a copied node, keeping the plugins' state true."""
        ...

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> Status:
        """Take a pod off a copied node, keeping the plugins' state true."""
        ...

    def resource_filters(
        self, state: CycleState, pod: PodInfo, nodes: DryRunTable
    ) -> ResourceFilters:
        """The same for many nodes at once, as far as amounts decide."""
        ...

    async def process_preemption(
        self, pod: PodInfo, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """Ask the extenders which of these preemptions, by node, will do.

        They may leave nodes out, even all, and name other victims. Raises ``ExtenderError``.
        """
        ...

    def preempt(self, pod: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Evict pods from a node to make room for a pod; returns at once.

        Victims that wait for permission or volumes are sent back to the queue, the others deleted.
        Less important pods lose their nomination to the node. If something fails, the pod is tried
        again. The caller nominates the pod.
        """
        ...

    def is_preempting(self, uid: str) -> bool:
        """Whether victims of this pod's preemption are still to be seen running."""
        ...


class PluginFactory(Protocol):
    """Builds a plugin from its arguments (a model, a raw mapping, or None) and its handle."""

    def __call__(self, args: Any, handle: Handle) -> Any: ...
