"""Services a plugin may use besides the arguments of its methods."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ksched.api.objects import Node
from ksched.cache.change_log import ChangeLog
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
    """The API requests available to plugins; they raise ``ApiError``."""

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        """Bind a pod."""
        ...

    async def read_volume(self, name: str) -> bytes:
        """Read a PersistentVolume; returns its complete JSON."""
        ...

    async def update_volume(self, name: str, body: bytes) -> bytes:
        """Replace a PersistentVolume of the same resourceVersion; returns what is stored.

        ``Conflict`` if it was updated since it was read.
        """
        ...

    async def read_claim(self, namespace: str, name: str) -> bytes:
        """Read a PersistentVolumeClaim; returns its complete JSON."""
        ...

    async def update_claim(self, namespace: str, name: str, body: bytes) -> bytes:
        """Replace a PersistentVolumeClaim, like ``update_volume``."""
        ...

    async def patch_pod_status(self, namespace: str, name: str, body: bytes) -> bytes:
        """Merge ``body`` strategically into a pod's status and return what is stored."""
        ...

    async def read_resource_claim(self, namespace: str, name: str) -> bytes:
        """Read a ResourceClaim; the answer is its JSON, whole."""
        ...

    async def create_resource_claim(self, namespace: str, body: bytes) -> bytes:
        """Create a ResourceClaim and return what is stored."""
        ...

    async def update_resource_claim(
        self, namespace: str, name: str, body: bytes, *, subresource: str = ""
    ) -> bytes:
        """Replace a ResourceClaim, or its status, like ``update_volume``."""
        ...

    async def patch_resource_claim_status(self, namespace: str, name: str, body: bytes) -> bytes:
        """Merge ``body`` strategically into a ResourceClaim's status."""
        ...

    async def delete_resource_claim(self, namespace: str, name: str) -> None:
        """Delete a ResourceClaim."""
        ...


class WaitingPod(Protocol):
    """A pod held at Permit by at least one plugin that returned WAIT.

    A pod whose async Permit call has not returned is not a waiting pod yet, unless another plugin
    returned WAIT: as in kube-scheduler, a plugin sees pods of earlier cycles, not the one it is
    called for.
    """

    pod: PodInfo
    node_name: str

    @property
    def pending_plugins(self) -> frozenset[str]:
        """The plugins that returned WAIT and have not allowed the pod since."""
        ...

    def allow(self, plugin: str) -> None:
        """Allow the pod for this plugin; it is bound when no other plugin holds it."""
        ...

    def reject(self, plugin: str, message: str) -> None:
        """Reject the pod, which returns to the queue."""
        ...


class EventRecorder(Protocol):
    """Writes Kubernetes Events in the background."""

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
        """Record an Event about a pod; ``related`` is a second pod involved."""
        ...


class PluginTasks(Protocol):
    """The tasks of one plugin, from its ``start`` to its ``stop``; the scheduler owns them."""

    def start_soon(
        self, function: Callable[..., Awaitable[Any]], *args: Any, name: str = ""
    ) -> None:
        """Run ``function(*args)`` beside everything else.

        A task that fails is logged with the plugin's name and ends alone. Those that still run
        after ``stop`` are cancelled. A plugin has at most a thousand.
        """
        ...


class ResourceFilters(Protocol):
    """The filters of a profile on a dry-run table, as far as amounts decide."""

    is_complete: bool
    """Whether a node without a rejection here passes all filters. Otherwise other filters read
    more than amounts, and the node must be tried on a copy."""

    def judge(self) -> NDArray[np.int32]:
        """Return 0 or the number of the rejecting status for each node.

        Reads the dry-run table's current ``amounts``.
        """
        ...

    def status(self, code: int) -> Status: ...


class Nominated(Protocol):
    """The nominations that concern one pod; what they are is read by ``resource_filters``."""

    @property
    def own_node(self) -> str:
        """Where the pod itself is nominated to, or empty: it is not counted there."""
        ...

    @property
    def log(self) -> ChangeLog[str]:
        """The names of nodes whose nominations changed, for pods of any priority."""
        ...

    def amounts_on(self, node_name: str) -> Hashable:
        """What they add to a node; equal where they add the same."""
        ...


class Handle(Protocol):
    """Passed to every plugin factory; shared by the plugins of a profile."""

    profile_name: str
    clock: Clock
    client: PodClient
    recorder: EventRecorder
    listers: Listers
    """Other objects of the cluster; call ``require`` in the constructor, also for custom kinds
    (docs/custom_kinds.md)."""
    rng: random.Random
    """The scheduler's generator: reproducible with ``--seed``."""
    metrics: Metrics

    @property
    def tasks(self) -> PluginTasks:
        """The plugin's tasks; only the handle that ``start`` is given has them."""
        ...

    @property
    def api_client(self) -> Any:
        """A ``kubernetes_asyncio.client.ApiClient`` on the scheduler's connection.

        ``CoreV1Api(handle.api_client)`` has kubernetes-asyncio's methods and models; see
        ``ksched.client.typed_client`` for limits, deadlines and errors. The library is imported
        with the first use, which takes a second: read it in the constructor.
        """
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the running cycle; do not store it."""
        ...

    def node(self, name: str) -> Node | None:
        """Return a node's current state: unlike the snapshot, not frozen. Also during binding."""
        ...

    def has_pod(self, uid: str) -> bool:
        """Whether a placed pod still exists: neither deleted nor forgotten since."""
        ...

    def get_waiting_pod(self, uid: str) -> WaitingPod | None: ...

    def waiting_pods(self) -> Iterable[WaitingPod]: ...

    def reject_waiting_pod(self, uid: str, message: str) -> bool:
        """Reject a pod held at Permit, also by an async call; False if there is none."""
        ...

    def pending_pods(self) -> Iterable[PodInfo]:
        """The newest versions of the pods of all profiles that are not assigned to a node yet.

        Wherever they are: waiting in the queue, being tried, held at Permit, about to be bound.
        """
        ...

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]: ...

    def nominated_node_name(self, pod: PodInfo) -> str:
        """Return the nominated node of a pod, even before the API server knows; "" if none."""
        ...

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Retry these pods now, if they are waiting."""
        ...

    # For PostFilter plugins. A dry run works on ``node.clone()`` and ``state.clone()``; statuses
    # are SUCCESS, a rejection, or ERROR if a plugin failed.

    def run_filters_with_nominated_pods(
        self, state: CycleState, pod: PodInfo, node: NodeInfo
    ) -> Status:
        """Run the filters on a (modified) node, with and without the pods nominated to it."""
        ...

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status:
        """Add a pod to a copied node and to the plugins' state."""
        ...

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> Status:
        """Remove a pod from a copied node and from the plugins' state."""
        ...

    def resource_filters(
        self, state: CycleState, pod: PodInfo, nodes: DryRunTable
    ) -> ResourceFilters:
        """The same for many nodes at once, as far as amounts decide."""
        ...

    def rejects_by_amounts_alone(self, state: CycleState, pod: PodInfo) -> bool:
        """Whether ``resource_filters`` decide alone, and judge nodes with equal amounts alike.

        Not if any node was rejected for anything else, as far as this attempt has shown.
        """
        ...

    def nominations(self, pod: PodInfo) -> Nominated:
        """Where dry runs for this pod count other pods than those that run there."""
        ...

    async def process_preemption(
        self, pod: PodInfo, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """Pass candidate preemptions, by node, through the extenders.

        They may remove nodes, even all, and change victims. Raises ``ExtenderError``.
        """
        ...

    def preempt(self, pod: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Evict pods from a node for a pod; returns immediately.

        Victims that wait on permit or for volumes return to the queue, the others are deleted.
        Pods of lower priority lose their nomination to the node. On failure the pod is retried. The
        caller nominates the pod.
        """
        ...

    def is_preempting(self, uid: str) -> bool:
        """Whether victims of this pod's preemption are still seen running."""
        ...

    def awaits_victims(self, uid: str) -> bool:
        """The same for PreEnqueue: a pod that has to wait is in ``released_preemptors`` later."""
        ...

    def released_preemptors(self) -> Collection[str]:
        """The UIDs of pods that had to wait for their victims and need not any more.

        Each is in it until ``awaits_victims`` is false for it.
        """
        ...


class PluginFactory(Protocol):
    """Builds a plugin from its arguments and its handle; usually the plugin's class.

    With an attribute ``args_model``, a pydantic model, ``args`` is one: what the configuration says
    is checked against it at start-up. Without, it is what the file says (a mapping) or ``None``.
    """

    def __call__(self, args: Any, handle: Handle) -> Any: ...
