"""The extension points, in the order in which a pod passes them.

A plugin is any object with a ``name`` and at least one of these methods; nothing is inherited. The
runtime finds out which points a plugin implements by looking for the methods, when it is built.
Filter and Score exist at two levels: per node (``filter``, ``score``: five lines, for most users)
and columnar (``filter_nodes``, ``score_nodes``: one NumPy expression over all nodes).

The points marked *async* may also be ``async def``; bindings, the watches and the lease go on while
they wait, and each call has the plugin's ``timeout_seconds`` (30 by default). What they hold up:

==================  ==========================================================================
PreFilter           the scheduling cycle, so every pod behind: the filters need its answer, and
                    the snapshot may not change between the two
PostFilter          the cycle: what it evicts or nominates decides what the next pod finds
Reserve             the cycle: the next pod's filters must see the plugin's books as they are
                    after this reservation, and Permit comes after it
Permit              its own pod only, and at most ``permit_concurrency`` calls at once
PreBind, Bind,      their own pod only
PostBind
==================  ==========================================================================

``scheduler_plugin_cycle_blocked_duration_seconds`` says what the first three cost the pods behind,
``scheduler_plugin_permit_duration_seconds`` what Permit costs its own. A plugin that has to ask
somebody for long does so at Permit, or remembers the answer and rejects at PreFilter until it is
there (``handle.activate`` wakes the pod).

A plugin that keeps something between pods may have a method ``sweep()``: it is called every twenty
seconds, never during a cycle, and drops what was not used since it was called before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ksched.cache.node_info import NodeInfo
from ksched.cache.node_table import NodeRows
from ksched.cache.pod_info import PodInfo
from ksched.framework.cluster_events import ClusterEventWithHint
from ksched.framework.cycle_state import CycleState
from ksched.framework.depends_on import FilterDependsOn, ScoreDependsOn
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.status import SUCCESS, Status
from ksched.framework.verdicts import ClassScores, Verdicts

if TYPE_CHECKING:
    from ksched.cache.snapshot import Snapshot
    from ksched.framework.diagnosis import Diagnosis

MAX_NODE_SCORE = 100
MIN_NODE_SCORE = 0


class Plugin(Protocol):
    """What every plugin has."""

    name: ClassVar[str]


class EnqueueExtensions(Protocol):
    """Says which events may make pods schedulable that this plugin rejected.

    A plugin with PreEnqueue, PreFilter, Filter, Reserve or Permit and without this is woken by
    every event, after the pod's backoff; a rejection with PENDING skips the backoff only for events
    that are registered here. What the scheduler writes into a pod's status is no event to that pod.
    """

    def events_to_register(self) -> Sequence[ClusterEventWithHint]: ...


class PreEnqueuePlugin(Plugin, Protocol):
    """Called before a pod enters the active queue; a rejection keeps it gated. Must be quick."""

    def pre_enqueue(self, pod: PodInfo) -> Status: ...


class QueueSortPlugin(Plugin, Protocol):
    """Orders the active queue: smaller keys first. Exactly one per scheduler.

    A plugin may define ``rank(queued)``: pods of equal rank are told apart by their age alone, and
    first attempts take turns with the retries of older pods (``queue.active``). Without it the
    order is that of the keys.
    """

    def sort_key(self, queued: QueuedPodInfo) -> Any: ...


class PreFilterResult(Struct, frozen=True):
    """PreFilter's answer: a status and, optionally, the only nodes worth looking at."""

    status: Status = SUCCESS
    node_names: frozenset[str] | None = None


class PreFilterPlugin(Plugin, Protocol):
    """Prepares the filters of one attempt (*async* allowed).

    SKIP: this plugin's filter is not needed for this pod. A rejection rejects the pod on all nodes.
    """

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> Status | PreFilterResult | Awaitable[Status | PreFilterResult]: ...


class PreFilterExtensions(Protocol):
    """Keeps PreFilter's state true while a dry run adds or removes pods on a node."""

    def add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo
    ) -> Status: ...

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> Status: ...


class FilterPlugin(Plugin, Protocol):
    """Says whether a pod may run on a node. SUCCESS or a rejection; anything else is an error."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status: ...


class ColumnarFilterPlugin(Plugin, Protocol):
    """Says for many nodes at once whether a pod may run there.

    ``filter_depends_on`` is optional: it declares what the verdicts depend on, and so how long the
    runtime caches them; without it, not at all.
    """

    @property
    def filter_depends_on(self) -> FilterDependsOn: ...

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts: ...


class PostFilterResult(Struct, frozen=True):
    """PostFilter's answer; ``nominated_node_name`` of ``None`` keeps what the pod has."""

    status: Status
    nominated_node_name: str | None = None


class PostFilterPlugin(Plugin, Protocol):
    """Called when no node fits (*async* allowed); may nominate a node after making room."""

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult | Awaitable[PostFilterResult]: ...


class PreScorePlugin(Plugin, Protocol):
    """Prepares scoring of the feasible nodes. SKIP: this plugin does not score this pod."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Status: ...


class ScorePlugin(Plugin, Protocol):
    """Rates one feasible node; 0 to 100, unless ``normalize`` brings it there."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int: ...


class ColumnarScorePlugin(Plugin, Protocol):
    """Rates many nodes at once; ``score_depends_on`` as ``filter_depends_on``.

    With scope CLUSTER or POD, where the nodes fall into a few classes, it may rate and normalise
    these itself (``ClassScores``).
    """

    @property
    def score_depends_on(self) -> ScoreDependsOn: ...

    def score_nodes(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows
    ) -> NDArray[np.int64] | ClassScores: ...


class ScoreExtensions(Protocol):
    """Brings the raw scores of all feasible nodes into the range 0 to 100.

    If the raw scores are cached (scopes NODE, RESOURCES and ROW) only ``scores`` may matter: while
    they are all the same, one of them is normalised for all.
    """

    def normalize(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows, scores: NDArray[np.int64]
    ) -> NDArray[np.int64]: ...


class ReservePlugin(Plugin, Protocol):
    """Keeps a plugin's own books on the chosen node (*async* allowed).

    ``unreserve`` is called in reverse order for every Reserve plugin when anything later fails,
    also for those whose ``reserve`` did not run; it must be idempotent and must not fail.
    """

    def reserve(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | Awaitable[Status]: ...

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


class PermitResult(Struct, frozen=True):
    """Permit's answer; with WAIT the pod is held for at most ``timeout_seconds``.

    More than 0; ``None`` stands for the plugin's ``permit_wait_seconds``.
    """

    status: Status = SUCCESS
    timeout_seconds: float | None = None


class PermitPlugin(Plugin, Protocol):
    """Last word before binding (*async* allowed): SUCCESS, a rejection, or WAIT.

    The synchronous plugins are asked inside the cycle, in order; the first rejection ends it. Then
    the async ones are started in order and run beside each other while the pod is held and the next
    cycle begins. All must agree; the first rejection, a deadline, the pod's deletion or preemption,
    shutdown and a lost lease cancel the calls that are under way. ``unreserve`` comes after the
    call has ended, but for one that swallows its cancellation (after a second) and at shutdown.
    A plugin has ``permit_concurrency`` calls at once, a class attribute or one set from its
    arguments (1024 by default, for each profile); pods beyond that wait for a slot in the order of
    their cycles, for a quarter of an hour at most, and the deadline counts from the start of the
    call. ``handle.snapshot`` is that of another cycle by then.

    A plugin that answers a bare ``wait()`` declares how long a pod is held at most:
    ``permit_wait_seconds``, a class attribute. A WAIT without any time, or with none left, breaks
    the contract, and the attempt fails with an error that says so.
    """

    def permit(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | PermitResult | Awaitable[Status | PermitResult]: ...


class PreBindPlugin(Plugin, Protocol):
    """Work that must be done before the pod is bound (*async* allowed), such as volumes.

    ``pre_bind_pre_flight`` is optional: SKIP says that there is nothing to do for this pod.
    """

    def pre_bind(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | Awaitable[Status]: ...


class BindPlugin(Plugin, Protocol):
    """Binds the pod (*async* allowed). SKIP leaves it to the next Bind plugin."""

    def bind(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | Awaitable[Status]: ...


class PostBindPlugin(Plugin, Protocol):
    """Told that a pod was bound (*async* allowed)."""

    def post_bind(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Awaitable[None] | None: ...
