"""SIGUSR2: the queue in the log, and cache against API server."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ksched.apiserver.faults import Fault, Rule
from ksched.daemon.inspection import SETTLE_SECONDS, compare_with_api_server, log_queue
from ksched.testing.builders import make_node, make_pod
from ksched.testing.harness import cluster


@pytest.fixture(autouse=True)
def _at_info(caplog):
    caplog.set_level(logging.INFO, logger="ksched.daemon")


async def test_queue_is_written_place_by_place(caplog):
    async with cluster(nodes=1) as c:
        await c.create(make_pod("big").req(cpu="100"))
        await c.settle()
        log_queue(c.scheduler)

    counts = {r.place: r.pods for r in caplog.records if r.message == "queue"}
    assert counts["unschedulable"] == 1
    assert counts["active"] == 0
    (queued,) = (r for r in caplog.records if r.message == "queued pod")
    assert (queued.pod, queued.rejected_by) == ("default/big", "NodeResourcesFit")


async def test_cache_that_agrees_says_so(caplog):
    async with cluster(nodes=3) as c:
        await c.create(make_pod("web"), make_pod("big").req(cpu="100"))
        await c.settle()
        found = await compare_with_api_server(c.scheduler)

    assert found is not None
    assert not found
    (record,) = (r for r in caplog.records if "agrees" in r.message)
    assert (record.nodes, record.pods) == (3, 1)


async def test_difference_that_stays_is_told(caplog):
    async with cluster(nodes=1) as c:
        c.scheduler.cache.add_node(make_node("phantom").obj())
        found = await compare_with_api_server(c.scheduler)

    assert found is not None
    assert found.redundant_nodes == {"phantom"}
    (record,) = (r for r in caplog.records if "differs" in r.message)
    assert record.redundant_nodes == "phantom"
    assert record.missed_pods == ""


async def test_difference_that_goes_is_not_told(caplog):
    async with cluster(nodes=1) as c:
        c.scheduler.cache.add_node(make_node("n2").obj())
        async with asyncio.TaskGroup() as tasks:
            comparison = tasks.create_task(compare_with_api_server(c.scheduler))
            await asyncio.sleep(SETTLE_SECONDS / 2)
            await c.create(make_node("n2"))

    assert not comparison.result()
    assert [r for r in caplog.records if "agrees" in r.message]


async def test_server_that_cannot_be_listed_is_a_warning(caplog):
    async with cluster(nodes=1) as c:
        c.faults.rules.append(Rule(Fault(lose_response=True), verb="list", resource="nodes"))
        found = await compare_with_api_server(c.scheduler)

    assert found is None
    assert [r.levelname for r in caplog.records if "comparison failed" in r.message] == ["WARNING"]
