"""The extension points, in pipeline order.

A plugin is any object with a ``name`` and at least one of these methods; no base class is required.
The runtime detects the implemented extension points by their methods, when the plugin is built.
Filter and Score exist at two levels: per node (``filter``, ``score``: five lines, for most users)
and columnar (``filter_nodes``, ``score_nodes``: one NumPy expression over all nodes).

The points marked *async* may also be ``async def``; bindings, watches and the lease continue while
a call is pending, and each call has the plugin's ``timeout_seconds`` (30 by default). A pending
call blocks:

==================  ==========================================================================
PreFilter           the scheduling cycle, so every pod behind: the filters need its result, and
                    the snapshot must not change between the two
PostFilter          the cycle: its evictions and nomination determine what the next pod finds
Reserve             the cycle: the next pod's filters must see the plugin's state after this
                    reservation, and Permit comes after it
Permit              its own pod only, with at most ``permit_concurrency`` concurrent calls
PreBind, Bind,      their own pod only
PostBind
==================  ==========================================================================

``scheduler_plugin_cycle_blocked_duration_seconds`` measures what the first three cost the pods
behind, ``scheduler_plugin_permit_duration_seconds`` what Permit costs its own pod. A plugin that
calls a slow service does so at Permit, or caches the response and rejects at PreFilter until it is
there (``handle.activate`` requeues the pod).

A plugin that works beside the attempts has ``start(handle)``, ``stop()`` or both, *async* or not
(``LifecyclePlugin``).

A plugin with state between pods may have a method ``sweep()``: it is called every twenty seconds,
never during a cycle, and drops what was not used since the previous call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Sequence
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
    from ksched.framework.handle import Handle

MAX_NODE_SCORE = 100
MIN_NODE_SCORE = 0


class Plugin(Protocol):
    """The base of every plugin."""

    name: ClassVar[str]


class LifecyclePlugin(Plugin, Protocol):
    """Called when the scheduler begins and when it ceases to schedule (*async* allowed).

    ``start`` runs when every watch is synced and this replica leads, before the first attempt, one
    plugin after the other. ``handle`` is that of the profile, with ``handle.tasks`` for background
    work. If it raises or exceeds ``timeout_seconds``, the scheduler ends: another replica may be
    able to lead.

    ``stop`` runs at shutdown, after a lost lease and after a failed ``start``, once no attempt and
    no call of the plugin is under way. It has two seconds; then the plugin's remaining tasks are
    cancelled. ``start`` may follow again when the lease is acquired again.
    """

    def start(self, handle: Handle) -> Awaitable[None] | None: ...

    def stop(self) -> Awaitable[None] | None: ...


class EnqueueExtensions(Protocol):
    """Registers the events that may make pods schedulable that this plugin rejected.

    A plugin with PreEnqueue, PreFilter, Filter, Reserve or Permit but without this method is
    registered for every event, after the pod's backoff; a rejection with PENDING skips the backoff
    only for events that are registered here. The scheduler's own status patches are no events for
    their pod.
    """

    def events_to_register(self) -> Sequence[ClusterEventWithHint]: ...


class PreEnqueuePlugin(Plugin, Protocol):
    """Called before a pod enters the active queue; a rejection gates the pod. Must be quick."""

    def pre_enqueue(self, pod: PodInfo) -> Status: ...


class QueueSortPlugin(Plugin, Protocol):
    """Orders the active queue: smaller keys first. Exactly one per scheduler.

    A plugin may define ``rank(queued)``: pods of equal rank differ by age only, and first attempts
    alternate with retries of older pods (``queue.active``). Without it the order is that of the
    keys.
    """

    def sort_key(self, queued: QueuedPodInfo) -> Any: ...


class PreFilterResult(Struct, frozen=True):
    """Result of PreFilter: a status and, optionally, the only candidate nodes."""

    status: Status = SUCCESS
    node_names: frozenset[str] | None = None


class PreFilterPlugin(Plugin, Protocol):
    """Prepares the filters of one attempt (*async* allowed).

    SKIP: this plugin's filter is not called for this pod. A rejection rejects the pod on all nodes.
    """

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> Status | PreFilterResult | Awaitable[Status | PreFilterResult]: ...


class PreFilterExtensions(Protocol):
    """Updates PreFilter's state when a dry run adds or removes pods on a node."""

    def add_pod(
        self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo
    ) -> Status: ...

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> Status: ...


class FilterPlugin(Plugin, Protocol):
    """Whether a pod may run on a node: SUCCESS or a rejection; anything else is an error."""

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status: ...


class ColumnarFilterPlugin(Plugin, Protocol):
    """Whether a pod may run on each of many nodes.

    ``filter_depends_on`` is optional: it declares what the verdicts depend on, and so how long the
    runtime caches them; without it they are not cached.
    """

    @property
    def filter_depends_on(self) -> FilterDependsOn: ...

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> Verdicts: ...


class PostFilterResult(Struct, frozen=True):
    """Result of PostFilter; ``nominated_node_name`` of ``None`` leaves the nomination unchanged."""

    status: Status
    nominated_node_name: str | None = None


class PostFilterPlugin(Plugin, Protocol):
    """Called when no node fits (*async* allowed); may preempt pods and nominate a node."""

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult | Awaitable[PostFilterResult]: ...


class PreScorePlugin(Plugin, Protocol):
    """Prepares scoring of the feasible nodes. SKIP: this plugin does not score this pod.

    SKIP_TEMPLATE and PASS_TEMPLATE hold for all pods of the template, also as PreFilter results.
    Synchronous; a call with long work may return a coroutine that yields to the event loop
    (``time_slices``), which the cycle awaits.
    """

    def pre_score(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows
    ) -> Status | Coroutine[Any, Any, Status]: ...


class ScorePlugin(Plugin, Protocol):
    """Scores one feasible node; 0 to 100, unless ``normalize`` maps it there."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int: ...


class ColumnarScorePlugin(Plugin, Protocol):
    """Scores many nodes at once; ``score_depends_on`` as ``filter_depends_on``.

    With scope CLUSTER or POD, where the nodes fall into a few classes, it may score and normalize
    these itself (``ClassScores``).
    """

    @property
    def score_depends_on(self) -> ScoreDependsOn: ...

    def score_nodes(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows
    ) -> NDArray[np.int64] | ClassScores: ...


class ScoreExtensions(Protocol):
    """Maps the raw scores of all feasible nodes to the range 0 to 100.

    If the raw scores are cached (scopes NODE, RESOURCES and ROW), the result may depend only on
    ``scores``: while they are all equal, one of them is normalized for all.
    """

    def normalize(
        self, state: CycleState, pod: PodInfo, nodes: NodeRows, scores: NDArray[np.int64]
    ) -> NDArray[np.int64]: ...


class ReservePlugin(Plugin, Protocol):
    """Maintains a plugin's own state for the selected node (*async* allowed).

    ``unreserve`` is called in reverse order for every Reserve plugin when a later step fails, also
    for those whose ``reserve`` did not run; it must be idempotent and must not fail.
    """

    def reserve(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | Awaitable[Status]: ...

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


class PermitResult(Struct, frozen=True):
    """Result of Permit; with WAIT the pod is held for at most ``timeout_seconds``.

    Must be positive; ``None`` means the plugin's ``permit_wait_seconds``.
    """

    status: Status = SUCCESS
    timeout_seconds: float | None = None


class PermitPlugin(Plugin, Protocol):
    """The last decision before binding (*async* allowed): SUCCESS, a rejection, or WAIT.

    Synchronous plugins run inside the cycle, in order; the first rejection ends it. Then the async
    ones are started in order and run concurrently while the pod is held and the next cycle begins.
    All must succeed; the first rejection, a deadline, the pod's deletion or preemption, shutdown
    and a lost lease cancel the running calls. ``unreserve`` follows after the call has ended,
    except for a call that swallows its cancellation (after a second) and at shutdown.
    A plugin has at most ``permit_concurrency`` concurrent calls, a class attribute or one set from
    its arguments (1024 by default, per profile); pods beyond that wait for a slot in the order of
    their cycles, for at most a quarter of an hour, and the deadline counts from the start of the
    call. ``handle.snapshot`` belongs to a later cycle by then.

    A plugin that returns a bare ``wait()`` declares how long a pod is held at most:
    ``permit_wait_seconds``, a class attribute. A WAIT without a timeout, or with one that is not
    positive, violates the contract: the attempt fails with an error that says so.
    """

    def permit(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | PermitResult | Awaitable[Status | PermitResult]: ...


class PreBindPlugin(Plugin, Protocol):
    """Work that must be done before the pod is bound (*async* allowed), such as volumes.

    ``pre_bind_pre_flight`` is optional: SKIP means that there is nothing to do for this pod.
    """

    def pre_bind(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | Awaitable[Status]: ...


class BindPlugin(Plugin, Protocol):
    """Binds the pod (*async* allowed). SKIP passes it to the next Bind plugin."""

    def bind(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Status | Awaitable[Status]: ...


class PostBindPlugin(Plugin, Protocol):
    """Called after a pod was bound (*async* allowed)."""

    def post_bind(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> Awaitable[None] | None: ...
