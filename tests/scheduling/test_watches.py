"""Watches that stop working: what readiness, metrics and the log say of them.

Covers ``ksched.client.watch_health`` too.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from ksched.api.resources import PERSISTENT_VOLUMES, PODS
from ksched.apiserver.faults import Fault, Rule
from ksched.apiserver.status_errors import StatusError
from ksched.client.catching_up import SILENT_SECONDS
from ksched.errors import Unavailable
from ksched.testing import Cluster, cluster, make_pod

REFUSED = StatusError(403, "Forbidden", "may not watch persistentvolumes")
VOLUMES = "persistentvolumes"


def forbid(c: Cluster, verbs: str, resource: str = VOLUMES, fault: Fault | None = None) -> None:
    """Take rights away; as with a real server, an open watch lives on until it is closed."""
    for verb in verbs.split():
        rule = Rule(fault or Fault(answer=REFUSED), verb=verb, resource=resource, times=None)
        c.faults.rules.append(rule)
    c.server.drop_watches()


def warnings(caplog: pytest.LogCaptureFixture, message: str) -> list[logging.LogRecord]:
    return [
        one for one in caplog.records if one.message == message and one.levelno == logging.WARNING
    ]


async def test_all_is_well_on_a_quiet_cluster_for_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster(nodes=1) as c:
        health = c.scheduler.watches.health
        for _ in range(60):
            await c.advance(60)
            assert health.problem() == ""
            assert max(health.ages().values()) <= 121
    assert not warnings(caplog, "list or watch failed")
    assert not warnings(caplog, "cluster state is out of date")


@pytest.mark.parametrize("verbs", ["watch", "watch list"])
async def test_a_right_that_is_taken_away_makes_unready_until_it_is_given_back(
    verbs: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(nodes=1) as c:
        health = c.scheduler.watches.health
        await c.advance(10)
        forbid(c, verbs)
        await c.advance(50)
        assert health.problem() == "", "a short outage is none"
        await c.advance(30)
        problem = health.problem()
        assert problem.startswith("persistentvolumes not watched for ")
        assert "since 20" in problem
        assert "403 Forbidden" in problem
        assert "may not watch persistentvolumes" in problem
        assert ";" not in problem, "only this kind"

        await c.advance(300)
        told = warnings(caplog, "cluster state is out of date")
        assert len(told) in (5, 6)
        assert all("persistentvolumes" in vars(one)["err"] for one in told)

        c.faults.rules.clear()
        await c.advance(120)
        assert health.problem() == ""
        (again,) = warnings(caplog, "watch works again")
        assert (vars(again)["resource"], vars(again)["after_seconds"] > 380) == (VOLUMES, True)
        before = len(warnings(caplog, "cluster state is out of date"))
        await c.advance(600)
        assert len(warnings(caplog, "cluster state is out of date")) == before


async def test_the_age_of_a_kind_that_cannot_be_read_grows() -> None:
    async with cluster(nodes=1) as c:
        await c.advance(10)
        forbid(c, "watch list")
        await c.advance(600)
        ages = c.scheduler.watches.health.ages()
        assert ages.pop(VOLUMES) >= 600
        assert max(ages.values()) <= 61


async def test_an_outage_names_every_kind() -> None:
    async with cluster(nodes=1) as c:
        await c.advance(10)
        forbid(c, "watch list", "", Fault(answer=StatusError(503, "ServiceUnavailable", "down")))
        await c.advance(200)
        health = c.scheduler.watches.health
        assert health.problem().count("not watched for") == len(health.ages())
        c.faults.rules.clear()
        await c.advance(100)
        assert health.problem() == ""


async def test_a_kind_that_was_never_listed_is_named() -> None:
    async with cluster(nodes=1, start=False) as c:
        forbid(c, "watch list")
        assert c.scheduler.watches.health.ages() == {}, "not watched yet"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await c.scheduler.watch()
        assert c.scheduler.watches.health.problem().startswith("persistentvolumes not watched")


async def test_a_watch_that_is_not_answered_is_given_up_after_half_a_minute() -> None:
    async with cluster(nodes=1) as c:
        await c.advance(10)
        forbid(c, "watch", VOLUMES, Fault(hang=True))
        watch = c.scheduler.client.watch
        began = c.clock.now()
        with pytest.raises(Unavailable, match="no answer within 30 seconds"):
            async with watch(PERSISTENT_VOLUMES, resource_version="1", idle_timeout=240):
                pass
        assert c.clock.now() - began == 30


async def test_a_list_that_takes_long_is_waited_for_as_long_as_more_of_it_comes() -> None:
    async with cluster(nodes=1) as c:
        await c.create(*(make_pod(f"p{number}").scheduler("other") for number in range(40)))
        await c.advance(10)
        slow = Rule(Fault(event_delay_seconds=2.0), "watch", "pods", times=None)
        c.faults.rules.append(slow)
        began = c.clock.now()
        assert await c.scheduler.watches.catch_up((PODS,))
        assert c.clock.now() - began > 2 * SILENT_SECONDS


async def test_a_list_of_which_nothing_comes_is_not_waited_for() -> None:
    async with cluster(nodes=1) as c:
        await c.advance(10)
        c.faults.rules.append(Rule(Fault(hang=True), resource="pods", times=None))
        began = c.clock.now()
        assert not await c.scheduler.watches.catch_up((PODS,))
        assert c.clock.now() - began == pytest.approx(SILENT_SECONDS, abs=0.1)
