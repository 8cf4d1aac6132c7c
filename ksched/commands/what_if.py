"""``ksched what-if``: what becomes of the pods if something changes, read from a live cluster."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from ksched.commands import Subparsers
from ksched.commands.read_only_access import (
    add_access_arguments,
    connected,
    read_configuration,
)
from ksched.errors import ConfigError

if TYPE_CHECKING:
    from ksched.configuration.model import SchedulerConfiguration
    from ksched.what_if.changes import Changes
    from ksched.what_if.prediction import Prediction

DESCRIPTION = """\
Try a change before you make it. The cluster is read once and copied into memory; the change is made
there, and every pod that has no node then is decided as kube-scheduler would. Nothing is written:
no node is cordoned, no pod is evicted, no workload is scaled.

  ksched what-if --drain n1 n2                 where their pods go, which stay pending and why
  ksched what-if --add-nodes 5 --like n1       which pending pods get a node then
  ksched what-if --scale deployment/web=500 -n shop
  ksched what-if --remove-taint dedicated:NoSchedule n3
  ksched what-if --config new.yaml             the pending pods under another configuration
  ksched what-if --capacity -f pod.yaml        how many more of a pod fit, and what runs out
  ksched what-if --drain n1 --capacity pod/web-0 --html after.html
  kubectl ksched what-if --drain n1            the same, as a plugin of kubectl

Options go together: nodes are added first, then taints removed, nodes drained, workloads scaled,
pods placed, and copies counted in the end.

exit codes: 0 no pod loses its place, 3 pods that run now would be pending or gone, or new ones
pending; with --capacity also: none fits; 1 failure, 2 bad usage
"""
LOSES = 3
MAX_NODES = 5000


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "what-if",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--drain", nargs="+", action="extend", default=[], metavar="NODE", help="drain these nodes")
    add("--add-nodes", type=int, default=0, metavar="N", help="add N nodes, with --like")
    add("--like", default="", metavar="NODE", help="the node that added nodes are like")
    add(
        "--scale",
        action="append",
        default=[],
        metavar="KIND/NAME=N",
        help="scale a deployment, statefulset or replicaset to N replicas; repeatable",
    )
    add(
        "--remove-taint",
        nargs="+",
        action="append",
        default=[],
        metavar=("KEY[=VALUE][:EFFECT]", "NODE"),
        help="remove a taint from these nodes, or from all that have it; repeatable",
    )
    add(
        "--capacity",
        nargs="?",
        const="",
        metavar="pod/NAME",
        help="count how many more of this pod, or of the one of -f, fit",
    )
    add("-f", "--filename", default="", metavar="FILE", help="a manifest, for --capacity")
    add("-n", "--namespace", default="default", metavar="NS", help="of workload and pod")
    add_access_arguments(parser)
    add("-o", "--output", choices=("wide", "json", "yaml"), default="", help="default: a summary")
    add("--html", default="", metavar="FILE", help="write the picture as an HTML file too")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    import uvloop

    logging.getLogger("ksched").addHandler(logging.NullHandler())
    pod_name, changes = _pod_name(arguments), _changes(arguments)
    configuration = read_configuration(arguments.config)
    prediction = uvloop.run(_predict(arguments, changes, pod_name, configuration))
    if arguments.html:
        _write_page(arguments.html, prediction)
    print(_text(prediction, arguments.output))
    none_fits = prediction.capacity is not None and not prediction.capacity.fits
    return LOSES if prediction.is_worse or none_fits else 0


def _changes(arguments: argparse.Namespace) -> Changes:
    from ksched.what_if.changes import AddNodes, Changes, parse_scale, parse_taint

    number, like = arguments.add_nodes, arguments.like
    if bool(number) != bool(like):
        raise ConfigError(["--add-nodes N and --like NODE go together"])
    if number and not 1 <= number <= MAX_NODES:
        raise ConfigError([f"--add-nodes: got {number}, wanted 1 to {MAX_NODES}"])
    changes = Changes(
        add_nodes=AddNodes(number, like) if number else None,
        remove_taints=tuple(map(parse_taint, arguments.remove_taint)),
        drain=tuple(arguments.drain),
        scale=tuple(parse_scale(text, arguments.namespace) for text in arguments.scale),
    )
    if not (changes.sentences() or arguments.config or arguments.capacity is not None):
        options = "--drain, --add-nodes, --scale, --remove-taint, --config or --capacity"
        raise ConfigError([f"nothing to try: give {options}"])
    return changes


def _pod_name(arguments: argparse.Namespace) -> str:
    """The pod to count, empty for that of a manifest or none at all."""
    if arguments.capacity is None:
        if arguments.filename:
            raise ConfigError(["-f FILE is the pod that --capacity counts: give --capacity too"])
        return ""
    kind, slash, name = arguments.capacity.rpartition("/")
    if slash and kind not in ("pod", "pods", "po"):
        raise ConfigError([f"--capacity: got {arguments.capacity}, wanted pod/NAME or -f FILE"])
    if bool(name) == bool(arguments.filename):
        raise ConfigError(["--capacity: give a pod's name, or -f FILE"])
    return str(name)


async def _predict(
    arguments: argparse.Namespace,
    changes: Changes,
    pod_name: str,
    configuration: SchedulerConfiguration,
) -> Prediction:
    from ksched.explain.manifest import read_manifest
    from ksched.what_if.predicting import predict

    async with connected(arguments, configuration) as (client, cluster):
        more_of = None
        if arguments.filename:
            more_of = await read_manifest(arguments.filename, arguments.namespace, client)
        elif pod_name:
            more_of = await cluster.read_pod(arguments.namespace, pod_name)
        await cluster.read()
        return await predict(cluster, changes, more_of=more_of)


def _write_page(path: str, prediction: Prediction) -> None:
    from ksched.what_if.web_page import page

    try:
        Path(path).write_text(page(prediction), encoding="utf-8")
    except OSError as problem:
        raise ConfigError([f"--html: cannot write {path}: {problem.strerror}"]) from problem


def _text(prediction: Prediction, output: str) -> str:
    if output in ("json", "yaml"):
        import msgspec

        if output == "yaml":
            return msgspec.yaml.encode(prediction).decode().rstrip()
        return msgspec.json.format(msgspec.json.encode(prediction), indent=2).decode()
    from ksched.what_if.rendering import render

    return render(prediction, wide=output == "wide")
