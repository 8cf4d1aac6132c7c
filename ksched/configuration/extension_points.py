"""The extension points: one row each, and what the rest of the scheduler reads from it.

Profiles name a point by ``key`` (``plugins``, ``expansion``); a plugin that has one of its methods
implements it (``framework.runtime.plugin_contract`` checks them, ``framework.runtime.framework``
collects them, ``testing.fake_plugins`` fakes them); metrics and messages have its ``label``. The
contract of each method is its protocol in ``framework.interface``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple


class OptionalMethod(NamedTuple):
    """A method that a plugin may have beside a point's own; useless without that."""

    name: str
    label: str
    """What messages call it, in kube-scheduler's words."""
    may_be_async: bool = False


class ExtensionPoint:
    """One row; compared by identity."""

    def __init__(
        self,
        key: str,
        about: str,
        methods: tuple[str, ...] = (),
        *,
        optional: tuple[OptionalMethod, ...] = (),
        may_be_async: bool = False,
        blocks_cycle: bool = False,
        rejects_pods: bool = False,
        has_weights: bool = False,
    ) -> None:
        self.key = key
        """What configurations call it: ``preFilter``."""
        self.label = f"{key[0].upper()}{key[1:]}"
        """What metrics and messages call it: ``PreFilter``."""
        self.interface = f"{self.label}Plugin"
        """The protocol of ``framework.interface``."""
        self.field = re.sub(r"(?=[A-Z])", "_", key).lower()
        """Its attribute of ``Plugins``."""
        self.about = about
        self.methods = methods
        """What makes a plugin implement the point; the first one present counts."""
        self.optional = optional
        self.may_be_async = may_be_async
        """Whether the methods may be ``async def``."""
        self.blocks_cycle = blocks_cycle
        """Whether the next pod waits for what an async method awaits."""
        self.rejects_pods = rejects_pods
        """Whether a rejection here makes a pod wait for events that the plugin registers."""
        self.has_weights = has_weights

    def __repr__(self) -> str:
        return self.label


PRE_ENQUEUE: Final = ExtensionPoint(
    "preEnqueue",
    "Called before a pod may enter the active queue.",
    ("pre_enqueue",),
    rejects_pods=True,
)
QUEUE_SORT: Final = ExtensionPoint(
    "queueSort",
    "Orders the active queue; exactly one, the same in all profiles (there is one queue).",
    ("sort_key",),
    optional=(OptionalMethod("rank", "QueueSort"),),
)
PRE_FILTER: Final = ExtensionPoint(
    "preFilter",
    "Called once per attempt before nodes are filtered.",
    ("pre_filter",),
    optional=(
        OptionalMethod("add_pod", "PreFilterExtensionAddPod"),
        OptionalMethod("remove_pod", "PreFilterExtensionRemovePod"),
    ),
    may_be_async=True,
    blocks_cycle=True,
    rejects_pods=True,
)
FILTER: Final = ExtensionPoint(
    "filter",
    "Rules out nodes that cannot run the pod.",
    ("filter_nodes", "filter"),
    rejects_pods=True,
)
POST_FILTER: Final = ExtensionPoint(
    "postFilter",
    "Called when no node is left: preemption.",
    ("post_filter",),
    may_be_async=True,
    blocks_cycle=True,
)
PRE_SCORE: Final = ExtensionPoint(
    "preScore",
    "Called once per attempt before nodes are scored.",
    ("pre_score",),
)
SCORE: Final = ExtensionPoint(
    "score",
    "Ranks the nodes that are left.",
    ("score_nodes", "score"),
    optional=(OptionalMethod("normalize", "Score"),),
    has_weights=True,
)
RESERVE: Final = ExtensionPoint(
    "reserve",
    "Claims and releases resources that plugins keep account of.",
    ("reserve",),
    optional=(OptionalMethod("unreserve", "Unreserve"),),
    may_be_async=True,
    blocks_cycle=True,
    rejects_pods=True,
)
PERMIT: Final = ExtensionPoint(
    "permit",
    "Approves, rejects or delays a binding.",
    ("permit",),
    may_be_async=True,
    rejects_pods=True,
)
PRE_BIND: Final = ExtensionPoint(
    "preBind",
    "Called before a pod is bound.",
    ("pre_bind",),
    optional=(OptionalMethod("pre_bind_pre_flight", "PreBindPreFlight", may_be_async=True),),
    may_be_async=True,
)
BIND: Final = ExtensionPoint(
    "bind",
    "Binds the pod; the first plugin that does not skip it has done it.",
    ("bind",),
    may_be_async=True,
)
POST_BIND: Final = ExtensionPoint(
    "postBind",
    "Called after a pod is bound.",
    ("post_bind",),
    may_be_async=True,
)
PLACEMENT_GENERATE: Final = ExtensionPoint(
    "placementGenerate", "Proposes placements for pod groups."
)
PLACEMENT_SCORE: Final = ExtensionPoint(
    "placementScore", "Ranks placements of pod groups.", has_weights=True
)

EXTENSION_POINTS: Final = (
    PRE_ENQUEUE,
    QUEUE_SORT,
    PRE_FILTER,
    FILTER,
    POST_FILTER,
    PRE_SCORE,
    SCORE,
    RESERVE,
    PERMIT,
    PRE_BIND,
    BIND,
    POST_BIND,
    PLACEMENT_GENERATE,
    PLACEMENT_SCORE,
)
"""In the order in which a pod passes them."""

OF_NO_POINT: Final = (
    OptionalMethod("events_to_register", "EnqueueExtensions"),
    OptionalMethod("sweep", "Sweep"),
)
"""Methods that any plugin may have."""

LIFECYCLE: Final = ("start", "stop")
"""Methods outside the extension points; words so common that others are no misspellings of them."""

OPTIONAL: Final[Mapping[str, tuple[ExtensionPoint, str]]] = {
    method.name: (point, method.label) for point in EXTENSION_POINTS for method in point.optional
}
"""By optional method, its point and what messages call it."""

NEEDED_BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    method.name: point.methods for point in EXTENSION_POINTS for method in point.optional
}
"""By optional method, those of which a plugin needs one for it to be called."""

MAY_BE_ASYNC: Final[Mapping[str, bool]] = {
    **{name: point.may_be_async for point in EXTENSION_POINTS for name in point.methods},
    **{one.name: one.may_be_async for point in EXTENSION_POINTS for one in point.optional},
    **{one.name: one.may_be_async for one in OF_NO_POINT},
}
"""Every method that a plugin may have."""
