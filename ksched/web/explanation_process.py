"""The process that explains one pod: ``python -m ksched.web.explanation_process UID``.

Reads a configuration and the state of a scheduler from its standard input (``explanations``), and
writes the explanation as JSON, or the reason why there is none and a code other than 0.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from ksched.client.rest import ApiClient
from ksched.clock import LoopClock
from ksched.configuration.loading import load_config
from ksched.errors import KschedError
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.explaining import explain
from ksched.explain.explanation import Explanation, NodeVerdict, alike
from ksched.explain.read_only import NoServer
from ksched.explain.rendering import headline
from ksched.journal import records
from ksched.journal.recorded_state import RecordedState
from ksched.web.views import View

SEARCH_SECONDS: Final = 20.0
"""For the changes that would make a pod fit."""
NODES_SHOWN: Final = 10
GROUPS_SHOWN: Final = 50
NOTES_SHOWN: Final = 20
EXAMPLES: Final = 3
_LEAST_IMPORTANT: Final = 19


async def explained(lines: Iterable[bytes], uid: str) -> View:
    """Explain a pod on the state that the lines describe; raises ``KschedError``."""
    remaining, clock = iter(lines), LoopClock()
    configuration = load_config(next(remaining).decode(), lambda warning: None)
    cluster = ClusterCopy(ApiClient(NoServer(), clock), configuration, clock)
    state = RecordedState(cluster)
    for line in remaining:
        state.apply(records.decode(line))
    pod = cluster.cache.get_pod(uid) or cluster.pending.get(uid)
    if pod is None:
        raise KschedError("the pod is not, or no longer, one of this scheduler's")
    found = await explain(cluster, pod.pod, SEARCH_SECONDS)
    return explanation_view(found, [*found.notes, *state.notes])


def explanation_view(explanation: Explanation, notes: Sequence[str]) -> View:
    """An explanation for a page: nodes that fail alike are one entry, and the best are shown."""
    feasible = explanation.feasible
    groups = alike(one for one in explanation.nodes if not one.fits)
    return {
        "pod": explanation.pod,
        "headline": headline(explanation),
        "node": explanation.node,
        "nominatedNode": explanation.nominated_node,
        "gates": explanation.gates,
        "notes": notes[:NOTES_SHOWN],
        "message": explanation.message,
        "nodeCount": explanation.num_all_nodes,
        "feasibleCount": len(feasible),
        "best": _best(feasible, explanation.node),
        "rejected": [
            {
                "count": len(group.nodes),
                "examples": group.nodes[:EXAMPLES],
                "rejections": msgspec.to_builtins(group.rejections),
            }
            for group in groups[:GROUPS_SHOWN]
        ],
        "preemption": msgspec.to_builtins(explanation.preemption),
        "changes": msgspec.to_builtins(explanation.changes),
    }


def _best(feasible: list[NodeVerdict], placed_on: str) -> list[View]:
    shown = feasible[:NODES_SHOWN]
    shown += [one for one in feasible[NODES_SHOWN:] if one.node == placed_on]
    return [{"node": one.node, "total": one.total, "scores": one.scores} for one in shown]


def main(arguments: Sequence[str]) -> int:
    _give_way()
    try:
        view, code = asyncio.run(explained(sys.stdin.buffer, arguments[0])), 0
        text = msgspec.json.format(msgspec.json.encode(view), indent=2)
    except KschedError as problem:
        text, code = str(problem).encode(), 1
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.flush()
    return code


def _give_way() -> None:
    """Leave processor and memory to the scheduler."""
    os.nice(_LEAST_IMPORTANT)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
