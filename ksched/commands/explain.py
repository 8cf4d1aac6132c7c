"""``ksched explain``: why a pod is pending or placed, read from a live cluster."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING

from ksched.commands import Subparsers
from ksched.commands.read_only_access import (
    add_access_arguments,
    connected,
    read_configuration,
)
from ksched.errors import ConfigError, KschedError

if TYPE_CHECKING:
    from ksched.configuration.model import SchedulerConfiguration
    from ksched.explain.explanation import Explanation

DESCRIPTION = """\
Explain a pod: why it is pending, node by node, or why it is on its node. The cluster is read once
(nodes, pods, and what the plugins look up), the decision is made here, nothing is written. Works
beside any scheduler that decides as kube-scheduler does; no daemon of ksched is needed.

  ksched explain pod/web-0 -n shop            nodes that fail alike are one line
  ksched explain web-0 -n shop -o wide        every node, every plugin that rejects it, every score
  ksched explain web-0 -n shop --node n3      one node
  ksched explain -f pod.yaml                  a pod, or a workload's pods, that do not exist yet
  kubectl ksched explain pod/web-0            the same, as a plugin of kubectl

exit codes: 0 the pod is placed or fits, 3 it fits nowhere or is gated, 1 failure, 2 bad usage
"""
FITS_NOWHERE = 3


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "explain",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("pod", nargs="?", metavar="[pod/]NAME", help="the pod")
    add("-n", "--namespace", default="", metavar="NS", help="its namespace (default: default)")
    add("-f", "--filename", default="", metavar="FILE", help="a manifest instead of a pod's name")
    add("--node", default="", metavar="NAME", help="explain this node only")
    add_access_arguments(parser)
    add("-o", "--output", choices=("wide", "json", "yaml"), default="", help="default: a summary")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    import uvloop

    logging.getLogger("ksched").addHandler(logging.NullHandler())
    configuration = read_configuration(arguments.config)
    explanation = uvloop.run(_explain(arguments, _pod_name(arguments), configuration))
    print(_text(explanation, arguments.output, arguments.node))
    is_waiting = explanation.gates or not (explanation.node or explanation.feasible)
    return FITS_NOWHERE if is_waiting else 0


def _pod_name(arguments: argparse.Namespace) -> str:
    kind, slash, name = (arguments.pod or "").rpartition("/")
    if slash and kind not in ("pod", "pods", "po"):
        raise ConfigError([f"{arguments.pod}: explains pods only, wanted [pod/]NAME"])
    if bool(name) == bool(arguments.filename):
        raise ConfigError(["give a pod's name, or -f FILE"])
    return name


async def _explain(
    arguments: argparse.Namespace, name: str, configuration: SchedulerConfiguration
) -> Explanation:
    from ksched.explain.explaining import explain
    from ksched.explain.manifest import read_manifest

    namespace = arguments.namespace or "default"
    async with connected(arguments, configuration) as (client, cluster):
        if arguments.filename:
            pod = await read_manifest(arguments.filename, namespace, client)
        else:
            pod = await cluster.read_pod(namespace, name)
        await cluster.read()
    explanation = await explain(cluster, pod)
    names = [one.node for one in explanation.nodes]
    if arguments.node and arguments.node not in names:
        raise KschedError(f"node {arguments.node}: not found among {len(names)} nodes")
    return explanation


def _text(explanation: Explanation, output: str, node: str) -> str:
    if output in ("json", "yaml"):
        import msgspec

        nodes = [one for one in explanation.nodes if not node or one.node == node]
        selected = msgspec.structs.replace(explanation, nodes=nodes)
        if output == "yaml":
            return msgspec.yaml.encode(selected).decode().rstrip()
        return msgspec.json.format(msgspec.json.encode(selected), indent=2).decode()
    from ksched.explain.rendering import render

    return render(explanation, wide=output == "wide", node=node)
