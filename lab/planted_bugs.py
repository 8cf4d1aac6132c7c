"""python -m lab.planted_bugs: do the histories of ``lab.histories`` find bugs of known kinds?

    python -m lab.planted_bugs --seeds 1000
    python -m lab.planted_bugs --bugs "lost wake-up"

Each bug is planted into the scheduler, and seeds are tried from 0 on until one finds it. The exit
code is 1 if one was not found.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

from ksched.api.objects import Node, Pod
from ksched.cache.cache import SchedulerCache
from ksched.cache.pod_states import CachedPod
from ksched.client.watch_store import Store
from ksched.election.fence import _FencedTransport
from ksched.framework.cluster_events import ASSIGNED_POD_DELETE
from ksched.queue.scheduling_queue import SchedulingQueue
from ksched.scheduling.binding_cycle import BindingCycle
from ksched.scheduling.event_handlers import NodeHandler, PodHandler
from ksched.scheduling.failure_handler import FailureHandler
from lab.histories import outcome_of


class Bug(NamedTuple):
    """A method that is replaced, by a function that gets the right one first."""

    owner: type[Any]
    method: str
    replacement: Callable[..., Any]


def lost_wake_up(right: Any, self: SchedulingQueue, event: Any, *more: Any) -> None:
    """Room that became free wakes nobody."""
    if event != ASSIGNED_POD_DELETE:
        right(self, event, *more)


def new_node_unnoticed(right: Any, self: NodeHandler, node: Node) -> None:
    self._put(node)


def node_change_ignored(right: Any, self: NodeHandler, old: Node, new: Node) -> None:
    """Taints, cordons and sizes are those of the first sight."""


async def lost_answer_believed(right: Any, self: BindingCycle, placed: Any) -> bool:
    """A bind without an answer counts as a bind that failed."""
    return False


def relist_without_deletions(right: Any, self: Store[Any], resource_version: str) -> None:
    """What is gone when a list is read again stays."""
    assert self._listed is not None
    self._listed |= self._objects.keys()
    right(self, resource_version)


def forgotten_unreserve(right: Any, self: BindingCycle, placed: Any) -> None:
    """The place of a pod whose bind failed stays taken."""
    self._waiting.discard(placed.pod.uid)


def dropped_after_error(
    right: Any, self: FailureHandler, queued: Any, diagnosis: Any = None
) -> Any:
    """A pod whose attempt met an error is not queued again."""
    if diagnosis is not None:
        return right(self, queued, diagnosis)
    self._queue.done(queued.uid)
    return None


def deleted_stays_queued(right: Any, self: SchedulingQueue, uid: str) -> None:
    """A deleted pod is tried again."""


def blind_successor(right: Any, self: PodHandler, pod: Pod) -> None:
    """Pods that were bound before the first list is complete are not counted."""
    if self.is_synced or not pod.spec.node_name:
        right(self, pod)


def assumed_pods_take_no_room(right: Any, self: SchedulerCache, pod: Any) -> None:
    """Until the watch confirms a bind its node looks as before."""
    self._pods[pod.uid] = self._assumed[pod.uid] = CachedPod(pod, is_assumed=True)


async def lease_ignored_by_binds(
    right: Any, self: _FencedTransport, method: str, path: str, *more: Any, **named: Any
) -> Any:
    """A bind is sent whoever leads."""
    guarded: Any = self._transport.request if path.endswith("/binding") else partial(right, self)
    return await guarded(method, path, *more, **named)


BUGS = {
    "lost wake-up": Bug(SchedulingQueue, "move_all_to_active_or_backoff_queue", lost_wake_up),
    "new node unnoticed": Bug(NodeHandler, "added", new_node_unnoticed),
    "node change ignored": Bug(NodeHandler, "modified", node_change_ignored),
    "lost answer believed": Bug(BindingCycle, "_is_bound_anyway", lost_answer_believed),
    "relist without deletions": Bug(Store, "end_list", relist_without_deletions),
    "forgotten unreserve": Bug(BindingCycle, "_give_back", forgotten_unreserve),
    "dropped after an error": Bug(FailureHandler, "put_back", dropped_after_error),
    "deleted stays queued": Bug(SchedulingQueue, "delete", deleted_stays_queued),
    "blind successor": Bug(PodHandler, "added", blind_successor),
    "assumed pods take no room": Bug(SchedulerCache, "assume_pod", assumed_pods_take_no_room),
    "lease ignored by binds": Bug(_FencedTransport, "request", lease_ignored_by_binds),
}


def found_by(name: str, seed: int) -> str:
    """What a seed's history says of a planted bug; empty if it does not find it."""
    bug = BUGS[name]
    right, replacement = getattr(bug.owner, bug.method), bug.replacement

    def wrong(*arguments: Any, **named: Any) -> Any:
        return replacement(right, *arguments, **named)

    with patch.object(bug.owner, bug.method, wrong):
        return outcome_of(seed)[1]


def first_seed(seeds: int, name: str) -> tuple[int, str] | None:
    """The first seed that finds a bug, and what it says."""
    for seed in range(seeds):
        if problem := found_by(name, seed):
            return seed, problem
    return None


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.planted_bugs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=1000, help="at most, for each bug")
    parser.add_argument("--bugs", nargs="*", choices=BUGS, default=tuple(BUGS), metavar="NAME")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    missed = 0
    with ProcessPoolExecutor(options.processes) as pool:
        results = pool.map(partial(first_seed, options.seeds), options.bugs)
        for name, found in zip(options.bugs, results, strict=True):
            missed += found is None
            seed, problem = found or (None, "")
            text = f"seed {seed}: {problem.strip().splitlines()[-1]}" if found else "not found"
            print(f"{name:26} {text[:160]}", flush=True)
    print(f"{len(options.bugs) - missed} of {len(options.bugs)} bugs found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
