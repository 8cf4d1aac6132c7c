"""The PreEnqueue plugins, run before a pod may enter ACTIVE or BACKOFF."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from ksched.cache.pod_info import PodInfo
from ksched.framework.status import SUCCESS, Status
from ksched.framework.untrusted_values import is_interrupt
from ksched.queue.work import QueueWork

log = logging.getLogger(__name__)

PreEnqueue = Callable[[PodInfo], Status]


class PreEnqueuePlugins:
    """PreEnqueue plugins by profile, in order."""

    def __init__(
        self, plugins: Mapping[str, Sequence[tuple[str, PreEnqueue]]], work: QueueWork
    ) -> None:
        self._plugins = plugins
        self._work = work
        self._failed: set[str] = set()
        self.unchecked: set[str] = set()
        """UIDs of ready pods that other plugins let pass, before ``replace``."""

    def replace(
        self, plugins: Mapping[str, Sequence[tuple[str, PreEnqueue]]], ready: Iterable[str]
    ) -> None:
        """Take other plugins; pods that are ready have to pass them too."""
        self._plugins = plugins
        self._failed.clear()
        self.unchecked = set(ready)

    def recheck(self, pod: PodInfo) -> str:
        """The first plugin that rejects a ready pod, if it has not passed them yet."""
        if pod.uid not in self.unchecked:
            return ""
        self.unchecked.discard(pod.uid)
        return self.gating_plugin(pod)

    def gating_plugin(self, pod: PodInfo) -> str:
        """Return the first plugin that rejects a pod, or an empty string.

        A plugin that raises counts as a rejection: a pod that is not ready must not be tried.

        kube-scheduler: runPreEnqueuePlugins, runPreEnqueuePlugin.
        """
        for plugin, pre_enqueue in self._plugins.get(pod.spec.scheduler_name, ()):
            self._work.pre_enqueue_calls += 1
            try:
                answer = pre_enqueue(pod)
                if answer is SUCCESS or answer.is_success:
                    continue
            except BaseException as problem:
                if is_interrupt(problem):
                    raise
                if plugin not in self._failed:
                    self._failed.add(plugin)
                    log.exception("PreEnqueue failed", extra={"plugin": plugin, "pod": pod.key})
            return plugin
        return ""
