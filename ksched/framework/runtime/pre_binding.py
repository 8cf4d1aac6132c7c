"""Pods whose PreBind plugins are running and can still be cancelled."""

from __future__ import annotations

from collections.abc import Awaitable

import anyio

from ksched.framework.status import Status, error


class PreBindingPods:
    """By UID; shared by the profiles of a scheduler.

    kube-scheduler: AddPodInPreBind, GetPodInPreBind, RemovePodInPreBind.
    """

    def __init__(self) -> None:
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._causes: dict[str, str] = {}

    async def run(self, uid: str, work: Awaitable[Status]) -> Status:
        """Await a pod's PreBind; returns an ERROR if the pod is cancelled meanwhile."""
        scope = self._scopes[uid] = anyio.CancelScope()
        try:
            with scope:
                status = await work
        finally:
            del self._scopes[uid]
            cause = self._causes.pop(uid, "")
        # Even if the plugins did not notice: the caller of ``cancel`` relies on the free space.
        return error(cause) if scope.cancel_called else status

    def cancel(self, uid: str, cause: str) -> bool:
        """Cancel a pod's PreBind; False if there is none.

        kube-scheduler: CancelPod.
        """
        scope = self._scopes.get(uid)
        if scope is None:
            return False
        if not scope.cancel_called:
            self._causes[uid] = cause
            scope.cancel()
        return True
