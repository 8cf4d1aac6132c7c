"""Attempts that are cancelled wherever they wait, from a seed: nothing may stay reserved.

    python -m lab.cancellation --seeds 1000

Pods pass plugins that wait at Permit, PreBind and Bind, and in their ``start``, for a while that
dice decide. Meanwhile pods
are deleted and preempted, the lease is lost and found again, and at the end it is lost for good or
SIGTERM comes. Whenever nothing is scheduled any more, every reservation must be gone and the cache
must agree with the API server.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
from collections import Counter
from typing import Any

from ksched.errors import ApiError
from ksched.framework import SUCCESS, Handle, PermitResult, Status, error, unschedulable, wait
from ksched.framework.runtime.plugin_tasks import STOP_SECONDS
from ksched.framework.runtime.waiting_pods import CANCEL_SECONDS
from ksched.testing import Checkers, Cluster, cluster, make_node, make_pod, virtual_time

SECONDS = (0.0, 0.0, 0.1, 0.5, 0.5, 1.0, 3.0)
"""Few different ones, so that things happen at the same instant."""
PROFILE = {
    "plugins": {
        "multiPoint": {"enabled": [{"name": "One"}, {"name": "Two"}]},
        "bind": {"disabled": [{"name": "DefaultBinder"}]},
    }
}
STEPS = 25
END_SECONDS = 3.0 + STOP_SECONDS + 2 * CANCEL_SECONDS
"""What the end of a scheduler may take: a call that swallows its cancellation is let go, first of
attempts and binding cycles, then of the plugins' ``stop`` and tasks."""


class Waiting:
    """Waits at every point from Reserve on, and keeps books of what it was asked for."""

    timeout_seconds = 4.0
    permit_wait_seconds = 2.0
    permit_concurrency = 3

    def __init__(self, name: str, rng: random.Random, cancelled: Counter[str]) -> None:
        self.name = name
        self.reserved: set[str] = set()
        self.calls = 0
        self._rng, self._cancelled = rng, cancelled
        self._handle: Handle | None = None

    def __call__(self, args: Any, handle: Handle) -> Waiting:
        self._handle = handle
        return self

    async def start(self, handle: Handle) -> None:
        handle.tasks.start_soon(self._live)
        await asyncio.sleep(self._rng.choice(SECONDS))

    async def stop(self) -> None:
        await asyncio.sleep(self._rng.choice((0, 0.1)))

    async def _live(self) -> None:
        self.calls += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.calls -= 1

    def reserve(self, state: Any, pod: Any, node_name: str) -> Status:
        assert pod.uid not in self.reserved, f"{pod.key} is reserved twice"
        self.reserved.add(pod.uid)
        return SUCCESS

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self.reserved.discard(pod.uid)

    async def permit(self, state: Any, pod: Any, node_name: str) -> Status | PermitResult:
        await self._wait("Permit")
        answer = self._rng.random()
        if answer < 0.1:
            return unschedulable("not today")
        if answer < 0.2:
            return wait()
        if answer < 0.25:
            raise RuntimeError("broken")
        return SUCCESS

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Status:
        await self._wait("PreBind")
        return SUCCESS if self._rng.random() < 0.9 else unschedulable("not here")

    async def bind(self, state: Any, pod: Any, node_name: str) -> Status:
        assert self._handle is not None
        await self._wait("Bind")
        try:
            await self._handle.client.bind(pod.namespace, pod.name, pod.uid, node_name)
        except ApiError as problem:
            return error(str(problem))
        await self._wait("Bind")
        return SUCCESS

    def post_bind(self, state: Any, pod: Any, node_name: str) -> None:
        self.reserved.discard(pod.uid)

    async def _wait(self, point: str) -> None:
        self.calls += 1
        try:
            for _ in range(self._rng.randint(1, 3)):
                await asyncio.sleep(self._rng.choice(SECONDS))
        except asyncio.CancelledError:
            self._cancelled[point] += 1
            if self._rng.random() < 0.5:
                # Cleaning up takes a moment, too.
                await asyncio.sleep(self._rng.choice((0, 0.1)))
            raise
        finally:
            self.calls -= 1


class CancelledLife:
    """One cluster's life from one seed; ``happened`` and ``cancelled`` tell what it contained."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.happened: Counter[str] = Counter()
        self.cancelled: Counter[str] = Counter()
        """Calls that were cancelled while they waited, by extension point."""
        self._rng = random.Random(seed)
        self._plugins = [Waiting(name, self._rng, self.cancelled) for name in ("One", "Two")]
        self._pods = 0

    async def run(self) -> None:
        """Live through it; raises ``AssertionError`` with the seed."""
        try:
            async with cluster(
                [make_node(f"n{number}").capacity(cpu="4") for number in range(2)],
                config={"profiles": [PROFILE]},
                plugins=self._plugins,
                seed=self.seed,
                kubelet=True,
                start=False,
            ) as c:
                await self._live(c)
        except AssertionError as problem:
            raise AssertionError(f"seed {self.seed}: {problem}") from problem

    async def _live(self, c: Cluster) -> None:
        for name, value in {"low": 10, "high": 1000}.items():
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            await c.create({**kind, "metadata": {"name": name}, "value": value})
        checkers = Checkers(c)
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(c.scheduler.watch())
            lead = tasks.create_task(c.scheduler.schedule())
            for _ in range(STEPS):
                await c.advance(self._rng.choice(SECONDS))
                action = self._rng.choices(("create", "delete", "preempt", "lease"), (6, 4, 3, 1))
                self.happened[action[0]] += 1
                if action == ["lease"]:
                    await self._end(c, lead)
                    self._check_rest(c)
                    checkers.check_books()
                    lead = tasks.create_task(c.scheduler.schedule())
                else:
                    await self._act(c, action[0])
            is_asked_to = self._rng.random() < 0.5
            if is_asked_to:
                self.happened["SIGTERM"] += 1
                c.scheduler.drain(0.5)
            await self._end(c, lead, is_asked_to=is_asked_to)
            self._check_rest(c)
            wrong = list(checkers.wrong_books())
            assert not wrong, wrong
            watch.cancel()

    async def _act(self, c: Cluster, action: str) -> None:
        if action == "delete":
            names = c.pod_names()
            for name in self._rng.sample(names, min(len(names), 2)):
                await c.delete(name, grace_seconds=0)
            return
        priority = "low" if action == "create" else "high"
        for _ in range(self._rng.randint(1, 4)):
            self._pods += 1
            pod = make_pod(f"{priority}-{self._pods}").req(cpu=self._rng.choice(("1", "2")))
            spec = {"priorityClassName": priority, "terminationGracePeriodSeconds": 1}
            await c.create(pod.merge({"spec": spec}))

    async def _end(
        self, c: Cluster, lead: asyncio.Task[None], *, is_asked_to: bool = False
    ) -> None:
        """Take the lease away, or wait for the end that was asked for."""
        began = c.clock.now()
        if not is_asked_to:
            lead.cancel()
        await asyncio.wait([lead])
        await c.settle()
        took = c.clock.now() - began
        assert took <= END_SECONDS, f"the end took {took:g} s"

    def _check_rest(self, c: Cluster) -> None:
        """Nothing is being scheduled: nothing is held."""
        scheduler = c.scheduler
        queue, cache = scheduler.queue.statistics(), scheduler.cache.statistics()
        left = {
            "reserved": set[str]().union(*(plugin.reserved for plugin in self._plugins)),
            "calls": sum(plugin.calls for plugin in self._plugins),
            "running or queued": sum(map(sum, scheduler.permit_calls.sizes().values())),
            "waiting": len(scheduler.waiting),
            "assumed": cache.assumed_pods,
            "in flight": queue.in_flight,
            "preemptions": len(scheduler.preemption),
        }
        assert not any(left.values()), f"at {c.clock.now():g} s: {left}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.cancellation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    happened: Counter[str] = Counter()
    cancelled: Counter[str] = Counter()
    failed = 0
    for seed in range(options.first, options.first + options.seeds):
        life = CancelledLife(seed)
        try:
            virtual_time.run(life.run())
        except AssertionError as problem:
            failed += 1
            print(problem)
        happened += life.happened
        cancelled += life.cancelled
    print(f"{options.seeds} seeds, {failed} failed; events {dict(happened)}")
    print(f"calls cancelled while they waited: {dict(cancelled)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
