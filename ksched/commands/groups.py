"""``ksched groups``: the pod groups of a running scheduler, and what each waits for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from ksched.commands import Subparsers
from ksched.commands.scheduler_client import ADDRESS_HELP, add_server_arguments, fetch

DESCRIPTION = f"""\
List the pod groups that a running scheduler knows: state, members, and what each group waits for.
With a name, also the pods of that group, and who holds room that it waits for: pods at Permit,
being bound or deleted, room reserved for others, groups that lack members. Groups that wait for
each other's room are named. Only the leader decides; a replica that stands by knows the members,
but not why a group was rejected.

states: incomplete  too few pods exist, or the group's object is missing
        pending     complete, not tried yet
        short       tried and did not fit; nothing is held meanwhile
        binding     all have nodes, the API server has not confirmed them yet
        placed      the minimum is on nodes
        ended       had its minimum, and pods have succeeded since
        broken      had its minimum, and has lost pods since: failed, deleted, or their nodes were;
                    replacements may wait for room

{ADDRESS_HELP}
exit codes: 0, or 1 if the scheduler cannot be reached or does not know the group
"""

LIMIT = 10_000

Group = dict[str, Any]


def add_parser(commands: Subparsers, summary: str) -> None:
    parser = commands.add_parser(
        "groups",
        help=summary,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("name", metavar="NAME", nargs="?", help="show this group and its pods")
    add("-n", "--namespace", help='default: all; with NAME "default"')
    add("-o", "--output", choices=("table", "json"), default="table")
    add_server_arguments(parser, "get /debug/groups")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    name, namespace = arguments.name, arguments.namespace
    path = f"/debug/groups?limit={LIMIT}"
    if name:
        namespace = namespace or "default"
        path = f"/debug/groups/{quote(namespace, '')}/{quote(name, '')}?limit={LIMIT}"
    view = msgspec.json.decode(fetch(arguments, path))
    groups: list[Group] = view["groups"]
    if namespace and not name:
        groups = [one for one in groups if one["group"].startswith(f"{namespace}/")]
    groups.sort(key=lambda one: (one["group"], one["dialect"]))
    if arguments.output == "json":
        print(msgspec.json.format(msgspec.json.encode(groups), indent=2).decode())
        return 0
    print("\n\n".join(map(_details, groups)) if name else _table(groups, namespace))
    if not name:
        _print_cycles(groups)
    if view["count"] > LIMIT and not name:
        print(f"only {LIMIT} of {view['count']} groups were read")
    return 0


def _print_cycles(groups: list[Group]) -> None:
    for cycle in sorted({", ".join(one["cycle"]) for one in groups if one["cycle"]}):
        print(f"\nwait for each other's room: {cycle}")


def _table(groups: list[Group], namespace: str | None) -> str:
    if not groups:
        return "no pod groups" + (f" in namespace {namespace}" if namespace else "")
    rows: list[tuple[str, ...]] = [
        ("GROUP", "STATE", "ON NODES", "MIN", "OTHER MEMBERS", "WAITS FOR")
    ]
    rows += [_cells(one) for one in groups]
    return _aligned(rows)


def _cells(group: Group) -> tuple[str, ...]:
    members: dict[str, int] = dict(group["members"])
    on_nodes = members.pop("bound", 0) + members.pop("assumed", 0)
    minimum = group["minimum"]
    return (
        group["group"],
        group["state"],
        str(on_nodes),
        "?" if minimum is None else str(minimum),
        ", ".join(f"{count} {state}" for state, count in sorted(members.items())) or "-",
        group["waitsFor"] or "-",
    )


def _details(group: Group) -> str:
    lines = [
        f"{group['group']}: {group['state']}",
        f"  waits for  {group['waitsFor'] or 'nothing'}",
        f"  minimum    {'?' if group['minimum'] is None else group['minimum']}",
        f"  marked by  {group['dialect']}",
        *_titled("held by", map(_holder, group["holders"])),
        *_titled("in a cycle", [", ".join(group["cycle"])] if group["cycle"] else []),
        "",
    ]
    rows: list[tuple[str, ...]] = [("POD", "ROLE", "STATE", "NODE")]
    rows += [
        (one["pod"], one["role"] or "-", one["state"], one["node"] or "-")
        for one in sorted(group["pods"], key=lambda one: _natural(one["pod"]))
    ]
    return "\n".join(lines) + "\n" + _aligned(rows)


def _titled(title: str, texts: Iterable[str]) -> list[str]:
    return [f"  {'' if number else title:10} {text}" for number, text in enumerate(texts)]


def _holder(holder: dict[str, Any]) -> str:
    """Return who holds room that the group waits for, and how."""
    pods, nodes = _number(holder["pods"], "pod"), _number(holder["nodes"], "node")
    text = {
        "at Permit": f"{pods} at Permit ({', '.join(holder['plugins'])})",
        "being bound": f"{pods} being bound",
        "being deleted": f"{pods} being deleted",
        "reserved": f"room reserved for {pods}",
        "lacks members": f"{pods} whose group lacks members",
    }[holder["holding"]]
    return f"{holder.get('group') or 'pod ' + holder['pod']}: {text}, on {nodes}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _natural(name: str) -> tuple[str, int]:
    """Sorts worker-2 before worker-10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def _aligned(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
