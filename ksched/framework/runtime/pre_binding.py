"""Pods whose PreBind plugins are at work, for as long as they can be called off."""

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
        """Await a pod's PreBind; ends with an ERROR if the pod is called off meanwhile."""
        scope = self._scopes[uid] = anyio.CancelScope()
        try:
            with scope:
                status = await work
        finally:
            del self._scopes[uid]
            cause = self._causes.pop(uid, "")
        # Also if the plugins did not notice: whoever called it off counts on its place.
        return error(cause) if scope.cancel_called else status

    def cancel(self, uid: str, cause: str) -> bool:
        """Call off a pod's PreBind; False if there is none."""
        scope = self._scopes.get(uid)
        if scope is None:
            return False
        if not scope.cancel_called:
            self._causes[uid] = cause
            scope.cancel()
        return True
