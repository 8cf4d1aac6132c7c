"""The states of a pod in the cache.

              assume_pod                 add_pod (the watch confirms)
   absent ──────────────► ASSUMED ─────────────────────────────────► ADDED
     ▲                      │ │                                      │  ▲
     │  forget_pod          │ │  finish_binding arms the deadline,   │  │ update_pod
     ├──────────────────────┘ │  expire_assumed                      └──┘
     ├────────────────────────┘                                      │
     └───────────────────────────────────────────────────────────────┘
                              remove_pod

Assumptions: a pod is assumed only after it was popped from the queue; the watch may confirm it
before or after the bind call returns, or on another node; the watch wins.
"""

from __future__ import annotations

from ksched.cache.pod_info import PodInfo


class CachedPod:
    """A pod on a node, and whether the API server has confirmed it.

    kube-scheduler: podState.
    """

    __slots__ = ("deadline", "info", "is_assumed", "is_bound")

    def __init__(self, info: PodInfo, is_assumed: bool) -> None:
        self.info = info
        self.is_assumed = is_assumed
        self.is_bound = False
        """Whether the bind call of an assumed pod has succeeded."""
        self.deadline: float | None = None
        """When an assumed pod whose binding finished expires, if ever."""
