"""What another configuration would decide about the pods that are pending now.

One pod of each template is judged by the plugins of both configurations, on the same snapshot, and
stands for all pods of its template. Nothing is placed, nobody is evicted, and extenders, which a
reload cannot change, are not called. Members of a pod group are judged one by one.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from ksched.cache.pod_info import PodInfo
from ksched.configuration.extension_points import PRE_ENQUEUE
from ksched.framework.cycle_state import CycleState
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.profiles import Profile
from ksched.framework.status import Status
from ksched.scheduling.scheduling_cycle import SchedulingCycle

MAX_EXAMPLES = 5


class Verdict(Struct, frozen=True):
    """What plugins decide: the rows of the nodes with the best score, or why there is none."""

    best: bytes = b""
    node: str = ""
    """One of the best."""
    reason: str = ""

    def __str__(self) -> str:
        return self.node or f"no node ({self.reason})"


class Kind(Struct):
    """Pending pods of one template."""

    pod: PodInfo
    pods: int = 0


class Comparison(Struct, rename="camel"):
    """How many pending pods would be decided otherwise, and what of some becomes."""

    pending: int = 0
    compared: int = 0
    """Pods whose template was judged; the others were too many, or took too long."""
    fit_now: int = 0
    """Pods that fitted nowhere before."""
    fit_no_longer: int = 0
    other_node: int = 0
    """Other nodes have the best score."""
    other_reason: int = 0
    """Pods that fit nowhere, but for another reason."""
    examples: list[str] = []

    @property
    def different(self) -> int:
        return self.fit_now + self.fit_no_longer + self.other_node + self.other_reason

    def add(self, kind: Kind, before: Verdict, after: Verdict) -> None:
        self.compared += kind.pods
        if (before.best, before.reason) == (after.best, after.reason):
            return
        if before.best and after.best:
            self.other_node += kind.pods
        elif after.best:
            self.fit_now += kind.pods
        elif before.best:
            self.fit_no_longer += kind.pods
        else:
            self.other_reason += kind.pods
        if len(self.examples) < MAX_EXAMPLES:
            alike = f" and {kind.pods - 1} like it" if kind.pods > 1 else ""
            self.examples.append(f"{kind.pod.key}{alike}: {before}, then {after}")


async def judge(cycle: SchedulingCycle, profile: Profile, pod: PodInfo) -> Verdict:
    """What a profile would decide on the snapshot as it is; call it between two attempts."""
    framework, state = profile.framework, CycleState()
    try:
        for hook in framework.hooks[PRE_ENQUEUE]:
            if not hook.status(hook.call(pod)).is_success:
                return Verdict(reason=f"gated by {hook.plugin}")
        fit = await cycle.fit_everywhere(profile, state, pod)
        if isinstance(fit, Status):
            return Verdict(reason=fit.message)
        rows = fit.rows
        if not len(rows):
            return Verdict(reason=fit.diagnosis.message if fit.diagnosis else "")
        if len(rows) > 1 and framework.scores:
            found, totals = await profile.pipeline.prioritize_nodes(state, pod, fit)
            totals = totals[rows] if found is None else totals
            rows = rows[totals == totals.max()]
    except PluginFailure as failed:
        return Verdict(reason=failed.status.message)
    rows = np.sort(rows)
    node = profile.pipeline.snapshot.table.infos[int(rows[0])].name
    return Verdict(rows.tobytes(), node)
