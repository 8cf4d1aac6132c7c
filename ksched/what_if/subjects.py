"""Pods whose fate is to be decided."""

from __future__ import annotations

from typing import Final

from ksched.api.objects import Pod
from ksched.cache.pod_info import PodInfo
from ksched.what_if.new_pods import controller_of
from ksched.what_if.prediction import Cause, Fate

_TEMPLATE_HASH: Final = "pod-template-hash"


class Subject:
    """A pod that has to be placed; another one takes its place if it is evicted meanwhile."""

    __slots__ = ("after", "before", "cause", "is_undecided", "message", "pod", "replaces")

    def __init__(self, pod: PodInfo, cause: Cause, *, before: str = "", replaces: str = "") -> None:
        self.pod, self.cause = pod, cause
        self.before, self.replaces = before, replaces
        self.after = ""
        self.message = ""
        self.is_undecided = False

    @property
    def fate(self) -> Fate:
        return Fate(
            pod=self.pod.key,
            workload=workload_of(self.pod.pod),
            cause=self.cause,
            replaces=self.replaces,
            before=self.before,
            after=self.after,
            message="" if self.after else self.message,
            is_undecided=self.is_undecided,
        )


def workload_of(pod: Pod) -> str:
    """``namespace/kind/name`` of what a pod belongs to; a Deployment rather than its ReplicaSet."""
    meta, controller = pod.metadata, controller_of(pod)
    if controller is None:
        return f"{meta.namespace}/pod/{meta.name}"
    kind, name = controller.kind.lower(), controller.name
    template = meta.labels.get(_TEMPLATE_HASH, "")
    if kind == "replicaset" and template and name.endswith(f"-{template}"):
        kind, name = "deployment", name.removesuffix(f"-{template}")
    return f"{meta.namespace}/{kind}/{name}"
