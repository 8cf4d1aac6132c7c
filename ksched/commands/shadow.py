"""``ksched shadow``: decides what a live scheduler decides, and reports agreement."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from ksched.commands import Subparsers
from ksched.commands.read_only_access import (
    add_access_arguments,
    check_answers,
    read_configuration,
)
from ksched.commands.structured_output import structured
from ksched.daemon import logs
from ksched.errors import ConfigError, KschedError

if TYPE_CHECKING:
    from ksched.configuration.model import SchedulerConfiguration
    from ksched.shadow.report import Summary
    from ksched.shadow.shadowing import Shadow

DESCRIPTION = """\
Follow a cluster beside its scheduler, kube-scheduler or ksched, and decide every pod that it
decides on the same state: how often both choose alike, and why they differ where they do. Nothing
is written, no pod is bound.

  ksched shadow                                until Ctrl-C, then the report
  ksched shadow --pods 500                     the report after 500 decisions
  ksched shadow --config new.yaml              what another configuration would decide
  ksched shadow --config new.yaml --live-config current.yaml
                                               what is known of the live one is not guessed
  ksched shadow --for 3600 -o json             for programs
  ksched shadow --metrics 127.0.0.1:10270      serve /metrics and /healthz meanwhile
  kubectl ksched shadow                        the same, as a plugin of kubectl

exit codes: 0 every difference has a cause outside of the scheduler's choice, 3 the schedulers
differ by configuration or without a known cause, 1 failure, 2 bad usage
"""
DIFFERENT = 3


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "shadow",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--pods", type=int, default=0, metavar="N", help="end after N decisions")
    add("--for", dest="seconds", type=float, default=0.0, metavar="SECONDS", help="end then")
    add("--live-config", metavar="FILE", help="configuration of the live scheduler, if known")
    add("--metrics", default="", metavar="HOST:PORT", help="serve /metrics and /healthz")
    add_access_arguments(parser)
    add("-o", "--output", choices=("wide", "json", "yaml"), default="", help="default: a summary")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    import uvloop

    logs.configure(0, "text")
    address = _address(arguments.metrics)
    if arguments.pods < 0 or arguments.seconds < 0:
        raise ConfigError(["--pods, --for: wanted a positive number"])
    configuration = read_configuration(arguments.config)
    live = read_configuration(arguments.live_config) if arguments.live_config else None
    summary = uvloop.run(_follow(arguments, configuration, live, address))
    print(_text(summary, arguments.output))
    return DIFFERENT if summary.is_different else 0


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    if not (colon and port.isdecimal() and int(port) < 65_536):
        raise ConfigError([f"--metrics: got {text}, wanted HOST:PORT"])
    return host.strip("[]") or "127.0.0.1", int(port)


async def _follow(
    arguments: argparse.Namespace,
    configuration: SchedulerConfiguration,
    live: SchedulerConfiguration | None,
    address: tuple[str, int] | None,
) -> Summary:
    import anyio

    from ksched.client.connecting import connect
    from ksched.client.rest import ApiClient
    from ksched.clock import LoopClock
    from ksched.explain.read_only import ReadOnlyTransport
    from ksched.shadow.rendering import line
    from ksched.shadow.shadowing import Shadow

    clock, loop = LoopClock(), asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        transport = await stack.enter_async_context(
            connect(arguments.kubeconfig, context=arguments.context)
        )
        client = ApiClient(ReadOnlyTransport(transport), clock)
        await check_answers(client)
        shadow = Shadow(client, configuration, clock, live_configuration=live)
        if arguments.output not in ("json", "yaml"):
            shadow.report.observer = lambda one: print(line(one), file=sys.stderr, flush=True)
        await shadow.check_access()
        if address is not None:
            await stack.enter_async_context(_serving(shadow, address))
        with anyio.move_on_after(arguments.seconds or None) as scope:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, scope.cancel)
            await shadow.run(arguments.pods)
    return shadow.summary()


@asynccontextmanager
async def _serving(shadow: Shadow, address: tuple[str, int]) -> AsyncIterator[None]:
    from ksched.shadow.shadow_metrics import ShadowMetrics
    from ksched.web.metrics_server import serving_metrics

    collectors = [ShadowMetrics(shadow)]
    try:
        async with serving_metrics(collectors, lambda: shadow.is_following, *address) as url:
            print(f"serving {url}/metrics", file=sys.stderr, flush=True)
            yield
    except OSError as problem:
        raise KschedError(f"--metrics: {address[0]}:{address[1]}: {problem.strerror}") from problem


def _text(summary: Summary, output: str) -> str:
    if output in ("json", "yaml"):
        return structured(summary, output)
    from ksched.shadow.rendering import render

    return render(summary, wide=output == "wide")
