"""What a plugin sees of the pods that have no node yet.

Covers ``ksched.queue.pending_pods``.
"""

from __future__ import annotations

from typing import Any

from ksched.framework import SUCCESS, PermitResult, wait
from ksched.testing import cluster, make_pod


class Looks:
    """Holds pods whose name begins with ``held``."""

    name = "Looks"

    def __init__(self, args: Any, handle: Any) -> None:
        self.handle = handle
        made.append(self)

    def permit(self, state: Any, pod: Any, node_name: str) -> Any:
        return PermitResult(wait(), 60.0) if pod.name.startswith("held") else SUCCESS


made: list[Looks] = []


async def test_pods_are_pending_wherever_they_wait_and_no_longer() -> None:
    def pending() -> list[str]:
        return sorted(pod.name for pod in made[-1].handle.pending_pods())

    async with cluster(1, plugins={"Looks": Looks}) as c:
        await c.create(make_pod("large").req(cpu="100"), make_pod("held"), make_pod("small"))
        foreign = make_pod("foreign").merge({"spec": {"schedulerName": "another"}})
        gated = make_pod("gated").merge({"spec": {"schedulingGates": [{"name": "later"}]}})
        await c.create(foreign, gated)
        await c.settle()
        assert c.bound("small") == "n1"
        assert pending() == ["gated", "held", "large"]
        await c.patch("large", {"metadata": {"labels": {"a": "b"}}})
        await c.settle()
        [large] = [pod for pod in made[-1].handle.pending_pods() if pod.name == "large"]
        assert large.labels["a"] == "b"
        await c.delete("large", grace_seconds=0)
        await c.settle()
        for pod in made[-1].handle.pending_pods():
            await c.delete(pod.name, grace_seconds=0)
        await c.settle()
        assert pending() == []
