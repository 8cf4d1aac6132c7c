"""A backlog that one event wakes does not keep a new pod waiting."""

from __future__ import annotations

import pytest

from ksched.framework import SUCCESS
from ksched.queue.active import FIRST_ATTEMPTS_PER_RETRY
from ksched.testing import Cluster, FakePlugin, cluster, make_pod

BACKLOG = 200


async def let_backlog_wait(c: Cluster) -> None:
    """Pods of as many shapes: none has room, and one of them at most will find some."""
    for priority in (-1, 1):
        await c.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": f"class{priority}"},
                "value": priority,
            }
        )
    await c.create(make_pod("running").req(cpu="4"))
    await c.settle()
    shapes = (make_pod(f"old-{number}").req(cpu=f"{3000 + number}m") for number in range(BACKLOG))
    await c.create(*shapes)
    await c.advance(20)


@pytest.mark.parametrize(
    ("priority", "retries"),
    [
        pytest.param(0, 1, id="the same priority"),
        pytest.param(1, 1, id="a higher priority"),
        pytest.param(-1, BACKLOG, id="a lower priority"),
    ],
)
async def test_a_new_pod_is_tried_among_the_first(priority: int, retries: int) -> None:
    witness = FakePlugin("Witness", pre_filter=SUCCESS)
    async with cluster(nodes=1, plugins=[witness]) as c:
        await let_backlog_wait(c)
        assert c.scheduler.queue.statistics().unschedulable == BACKLOG
        before = len(witness.journal)
        await c.delete("running", grace_seconds=0)
        new = make_pod("new").req(cpu="1")
        if priority:
            new = new.merge({"spec": {"priorityClassName": f"class{priority}"}})
        await c.create(new)
        await c.settle()
        tried = [call.pod for call in witness.journal[before:]]
        assert tried.index("default/new") <= retries
        assert len(tried) == BACKLOG + 1


async def test_a_backlog_is_tried_while_new_pods_keep_coming() -> None:
    witness = FakePlugin("Witness", pre_filter=SUCCESS)
    async with cluster(nodes=1, plugins=[witness]) as c:
        await let_backlog_wait(c)
        before = len(witness.journal)
        await c.delete("running", grace_seconds=0)
        await c.create(*(make_pod(f"new-{number}").req(cpu="1m") for number in range(100)))
        await c.settle()
        tried = [call.pod for call in witness.journal[before:]]
        last = tried.index("default/new-99")
        retried = sum(pod.startswith("default/old") for pod in tried[:last])
        assert 100 // (FIRST_ATTEMPTS_PER_RETRY + 1) <= retried < BACKLOG
