"""DefaultBinder: the bind call to the API server."""

from __future__ import annotations

import math
from typing import ClassVar

from ksched.errors import ApiError
from ksched.framework import SUCCESS, CycleState, Handle, PodInfo, Status, error
from ksched.framework.plugins import names


class DefaultBinder:
    """Binds a pod by creating its ``binding`` subresource.

    A failure response becomes the text of an error: the attempt fails and is retried. No
    arguments.
    """

    name: ClassVar[str] = names.DEFAULT_BINDER
    timeout_seconds: ClassVar[float] = math.inf
    """The request has a deadline, and so have its repetitions: a second timer for each would cost
    a hundredth of the CPU of a pod."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        try:
            await self._handle.client.bind(pod.namespace, pod.name, pod.uid, node_name)
        except ApiError as problem:
            return error(str(problem))
        return SUCCESS
