"""Asks an HTTP service about every pod that has found a node, before it is bound there.

The service gets ``{"namespace": ..., "name": ..., "node": ...}`` and answers 200 with
``{"allowed": true}``, ``{"allowed": false, "reason": ...}`` or ``{"waitSeconds": ...}``: retry
then. During the call only the pod itself waits; other pods are scheduled and bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from pydantic import BaseModel, Field, HttpUrl

from ksched.framework import SUCCESS, CycleState, Handle, PodInfo, Status, unschedulable

Question = dict[str, str]
Answer = dict[str, Any]


class AskPermitArgs(BaseModel):
    """``pluginConfig`` in the configuration; what is wrong there is told when ksched starts."""

    url: HttpUrl
    timeout_seconds: float = Field(default=10.0, alias="timeoutSeconds", gt=0)
    """For one question."""


class AskPermit:
    name = "AskPermit"
    timeout_seconds = 120.0
    """For the whole of ``permit``; then the attempt fails, and is made again after a pause."""
    permit_concurrency = 100
    """Concurrent calls. Further pods queue for a slot, each assumed on its node."""

    args_model = AskPermitArgs

    def __init__(self, args: AskPermitArgs, handle: Handle) -> None:
        self._url = str(args.url)
        self._timeout = aiohttp.ClientTimeout(total=args.timeout_seconds)
        self._session: aiohttp.ClientSession | None = None
        self.ask: Callable[[Question], Awaitable[Answer]] = self._post

    async def start(self, handle: Handle) -> None:
        """Called before the first attempt: connections are kept and used again."""
        self._session = aiohttp.ClientSession(timeout=self._timeout, raise_for_status=True)

    async def stop(self) -> None:
        """Called at the end, and also if ``start`` failed."""
        if self._session is not None:
            await self._session.close()

    async def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Cancelled when the pod is deleted or preempted, and when the scheduler stops."""
        question = {"namespace": pod.namespace, "name": pod.name, "node": node_name}
        while True:
            answer = await self.ask(question)
            if "waitSeconds" in answer:
                await asyncio.sleep(answer["waitSeconds"])
            elif answer.get("allowed"):
                return SUCCESS
            else:
                return unschedulable(f"denied: {answer.get('reason', 'no reason given')}")

    async def _post(self, question: Question) -> Answer:
        # What goes wrong here is an error of the attempt: told in the pod's condition and retried.
        assert self._session is not None
        async with self._session.post(self._url, json=question) as response:
            answer: Answer = await response.json()
            return answer
