"""``ksched apiserver``: the embedded cluster on a socket, for kubectl and schedulers."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

from ksched.commands import Subparsers
from ksched.errors import KschedError

DESCRIPTION = """\
Run a small in-memory Kubernetes API server with simulated nodes that pretend to run the pods bound
to them. Nothing is persisted. Loopback only, no authentication.

  ksched apiserver --kubeconfig-out /tmp/kubeconfig
  KUBECONFIG=/tmp/kubeconfig kubectl get nodes
"""


MOST_DEVICES = 128
"""What one ResourceSlice may have."""


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "apiserver",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8001,
        help="port on 127.0.0.1; 0 for a free one (default 8001)",
    )
    parser.add_argument("--nodes", type=int, default=10, metavar="N", help="nodes (default 10)")
    parser.add_argument(
        "--devices",
        type=int,
        default=0,
        metavar="N",
        help="devices of the class gpu.example.com on each node, at most 128 (default 0)",
    )
    parser.add_argument(
        "--kubeconfig-out", default="", metavar="FILE", help="write a kubeconfig for this server"
    )
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    import uvloop

    if not 0 <= arguments.devices <= MOST_DEVICES:
        text = f"--devices: got {arguments.devices}, wanted 0 to {MOST_DEVICES}"
        raise KschedError(text)
    out = Path(arguments.kubeconfig_out) if arguments.kubeconfig_out else None
    uvloop.run(_serve(arguments.port, arguments.nodes, arguments.devices, out))
    return 0


async def _serve(port: int, nodes: int, devices: int, kubeconfig_out: Path | None) -> None:
    import anyio

    from ksched.apiserver.serving import serve

    def ready(url: str) -> None:
        print(f"serving {nodes} nodes on {url}", flush=True)

    with anyio.CancelScope() as scope:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, scope.cancel)
        try:
            await serve(port, nodes, kubeconfig_out, devices=devices, on_ready=ready)
        except OSError as error:
            raise KschedError(_explained(error, port)) from error
        except ExceptionGroup as group:
            found = group.subgroup(OSError)
            if found is None:
                raise
            raise KschedError(_explained(found.exceptions[0], port)) from group


def _explained(error: Exception, port: int) -> str:
    assert isinstance(error, OSError)
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.filename:
        return f"--kubeconfig-out: cannot write {error.filename}: {reason}"
    return f"--port: cannot listen on port {port}: {reason}"
