"""A connection to a cluster for a program that embeds a scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ksched.client.http_transport import USER_AGENT, HttpTransport
from ksched.client.kubeconfig import load_client_config
from ksched.clock import Clock, LoopClock
from ksched.transport import Transport


@asynccontextmanager
async def connect(
    kubeconfig: str = "",
    *,
    context: str = "",
    user_agent: str = USER_AGENT,
    clock: Clock | None = None,
) -> AsyncIterator[Transport]:
    """Connect to the cluster of a kubeconfig until the block ends.

    Default: KUBECONFIG, ``~/.kube/config``, or the cluster of the pod that this runs in. Raises
    ``ConfigError``, naming file and field; no request is sent here.
    """
    clock = clock or LoopClock()
    config = load_client_config(clock, kubeconfig=kubeconfig, context=context)
    transport = HttpTransport(config, clock, user_agent=user_agent)
    try:
        yield transport
    finally:
        await transport.aclose()
