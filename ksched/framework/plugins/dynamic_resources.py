"""DynamicResources: devices that ksched does not allocate, said clearly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ksched.framework import (
    SKIP_TEMPLATE,
    ClusterEventWithHint,
    CycleState,
    PodInfo,
    Snapshot,
    Status,
    unresolvable,
)
from ksched.framework.plugins import names

NOT_ALLOCATED = unresolvable("pod uses resource claims, which ksched does not allocate")


class DynamicResources:
    """Rejects pods that name resource claims, because ksched does not allocate devices.

    Stands where kube-scheduler's plugin of dynamic resource allocation stands, so that such a pod
    waits with the reason ``pod uses resource claims, which ksched does not allocate`` instead of
    being placed as if it needed none. Where another program takes care of the claims, disable the
    plugin. Its arguments ``filterTimeout`` and ``bindingTimeout`` have no effect.
    """

    name: ClassVar[str] = names.DYNAMIC_RESOURCES

    def pre_filter(self, state: CycleState, pod: PodInfo, snapshot: Snapshot) -> Status:
        return NOT_ALLOCATED if pod.template.spec.resource_claims else SKIP_TEMPLATE

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Nothing helps: what a pod claims never changes."""
        return ()
