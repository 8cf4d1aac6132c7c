"""What commands that only read a cluster have in common: its address, and the configuration."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ksched.client.rest import ApiClient
    from ksched.configuration.model import SchedulerConfiguration
    from ksched.explain.cluster_copy import ClusterCopy

ANSWER_SECONDS = 10.0


def add_access_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config", metavar="FILE", help="configuration of the scheduler (default: the built-in)")
    add("--kubeconfig", default="", metavar="FILE", help="credentials and address")
    add("--context", default="", metavar="NAME", help="context of the kubeconfig")


def read_configuration(path: str | None) -> SchedulerConfiguration:
    """Read the file, or take the defaults; raises ``ConfigError``."""
    from ksched.configuration.flags import add_run_flags, run_options
    from ksched.framework.runtime.registry import available

    parser = argparse.ArgumentParser()
    add_run_flags(parser)
    flags = parser.parse_args([f"--config={path}"] if path else [])
    options = run_options(flags, available())
    for note in options.notes:
        print(f"warning: {note}", file=sys.stderr)
    return options.configuration


async def check_answers(client: ApiClient) -> None:
    """Raise at once if there is no API server; other requests are repeated for half a minute."""
    from ksched.errors import ApiError, KschedError

    try:
        await client.request("GET", "/version", timeout=ANSWER_SECONDS)
    except ApiError as problem:
        # Any response is one: who may do what, the following requests will tell.
        if not problem.code:
            raise KschedError(f"no answer from the API server: {problem.message}") from problem


@asynccontextmanager
async def connected(
    arguments: argparse.Namespace, configuration: SchedulerConfiguration
) -> AsyncIterator[tuple[ApiClient, ClusterCopy]]:
    """Connect, read-only, and give a copy of the cluster that is still to be read."""
    from ksched.client.connecting import connect
    from ksched.client.rest import ApiClient
    from ksched.clock import LoopClock
    from ksched.explain.cluster_copy import ClusterCopy
    from ksched.explain.read_only import ReadOnlyTransport

    clock = LoopClock()
    async with connect(arguments.kubeconfig, context=arguments.context) as transport:
        client = ApiClient(ReadOnlyTransport(transport), clock)
        await check_answers(client)
        yield client, ClusterCopy(client, configuration, clock)
