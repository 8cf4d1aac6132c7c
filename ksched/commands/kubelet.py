"""``ksched kubelet``: simulated nodes for any API server."""

from __future__ import annotations

import argparse
import asyncio
import signal

from ksched.commands import Subparsers
from ksched.errors import ConfigError

DESCRIPTION = """\
Register nodes node-0001 and so on at an API server and pretend to run the pods bound to them: they
become ready, end when they are deleted, and the nodes' leases are renewed. Pods on other nodes are
left alone. For a control plane without machines: tests and experiments.

  ksched kubelet --kubeconfig admin.kubeconfig --nodes 3
"""


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "kubelet",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--nodes", type=int, default=10, metavar="N", help="nodes (default 10)")
    add("--kubeconfig", default="", metavar="FILE", help="credentials and address")
    add("--context", default="", metavar="NAME", help="context of the kubeconfig")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    import uvloop

    if arguments.nodes < 1:
        raise ConfigError([f"--nodes: got {arguments.nodes}, wanted at least 1"])
    uvloop.run(_simulate(arguments.kubeconfig, arguments.context, arguments.nodes))
    return 0


async def _simulate(kubeconfig: str, context: str, nodes: int) -> None:
    import anyio

    from ksched.apiserver.simulated_nodes import simulate_nodes
    from ksched.client.connecting import connect
    from ksched.clock import LoopClock

    clock = LoopClock()

    def ready() -> None:
        print(f"running {nodes} nodes", flush=True)

    with anyio.CancelScope() as scope:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, scope.cancel)
        async with connect(kubeconfig, context=context, clock=clock) as transport:
            await simulate_nodes(transport, clock, nodes, ready)
