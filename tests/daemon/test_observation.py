"""What a scheduler does, as numbers.

Covers ``ksched.framework.runtime.profile_metrics`` too.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ksched.clock import LoopClock
from ksched.daemon import logs
from ksched.daemon.observation import LAG_PROBE_SECONDS, Observation
from ksched.framework import PermitResult, wait
from ksched.metrics import Metrics
from ksched.testing.builders import make_node, make_pod
from ksched.testing.harness import cluster
from lab.gangs import Gang, configured

PROFILE = "default-scheduler"


@asynccontextmanager
async def observed_cluster(**options):
    observation = Observation(Metrics())
    async with cluster(observer=observation, metrics=observation.metrics, **options) as c:
        observation.attach(c.scheduler)
        yield c, observation


def samples(observation) -> dict[Any, Any]:
    text = generate_latest(observation.metrics).decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_bound_pod_is_counted_with_its_duration_and_attempts():
    async with observed_cluster(nodes=1) as (c, observation):
        await c.create(make_pod("web"))
        await c.settle()
        found = samples(observation)

    assert found["scheduler_schedule_attempts_total", PROFILE, "scheduled"] == 1
    assert found["scheduler_scheduling_attempt_duration_seconds_count", PROFILE, "scheduled"] == 1
    assert found["scheduler_scheduling_algorithm_duration_seconds_count",] == 1
    assert found["scheduler_pod_scheduling_sli_duration_seconds_count", "1"] == 1
    assert found["scheduler_pod_scheduling_attempts_sum",] == 1
    assert found["scheduler_queue_incoming_pods_total", "UnschedulablePodAdd", "active"] == 1
    assert found["scheduler_cache_size", "nodes"] == 1
    assert found["scheduler_cache_size", "pods"] == 1
    assert found["scheduler_pending_pods", "active"] == 0


async def test_age_of_every_watch_is_shown():
    async with observed_cluster(nodes=1) as (c, observation):
        await c.advance(10)
        await c.add_nodes(1)
        await c.advance(5)
        found = samples(observation)
    assert found["scheduler_watch_age_seconds", "nodes"] == pytest.approx(5)
    assert found["scheduler_watch_age_seconds", "persistentvolumes"] == pytest.approx(15)


async def test_bound_pod_is_told(caplog):
    caplog.set_level(logging.INFO, logger="ksched")
    async with observed_cluster(nodes=2) as (c, _):
        await c.create(make_pod("web").node_selector({"kubernetes.io/hostname": "n2"}))
        await c.settle()

    (record,) = (r for r in caplog.records if r.message == "pod bound to node")
    assert (record.pod, record.node, record.evaluated_nodes, record.feasible_nodes) == (
        "default/web",
        "n2",
        2,
        1,
    )


@pytest.fixture
def set_verbosity():
    touched = [logging.getLogger(name) for name in (logs.PACKAGE, logs.DAEMON)]
    before = [(logger, logger.level) for logger in touched]
    yield logs.set_verbosity
    for logger, level in before:
        logger.setLevel(level)


@pytest.mark.parametrize(("verbosity", "told"), [(0, 0), (1, 0), (2, 1)])
async def test_bound_pods_are_told_from_verbosity_2_on(set_verbosity, caplog, verbosity, told):
    set_verbosity(verbosity)
    async with observed_cluster(nodes=1) as (c, _):
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web")

    assert [one.message for one in caplog.records].count("pod bound to node") == told


async def test_pod_that_waited_is_counted_from_its_first_chance():
    async with observed_cluster(nodes=[make_node("small").capacity(cpu="1")]) as (c, observation):
        await c.create(make_pod("big").req(cpu="2"))
        await c.settle()
        waiting = samples(observation)
        await c.advance(20)
        await c.create(make_node("large").capacity(cpu="4"))
        await c.settle()
        bound = samples(observation)

    fit = "NodeResourcesFit"
    assert waiting["scheduler_pending_pods", "unschedulable"] == 1
    assert waiting["scheduler_unschedulable_pods", fit, PROFILE] == 1
    assert waiting["scheduler_schedule_attempts_total", PROFILE, "unschedulable"] == 1
    incoming = "scheduler_queue_incoming_pods_total"
    assert waiting[incoming, "ScheduleAttemptFailure", "unschedulable"] == 1
    assert bound["scheduler_pod_scheduling_attempts_sum",] == 2
    assert bound["scheduler_pod_scheduling_sli_duration_seconds_sum", "2"] == pytest.approx(20)
    assert bound["scheduler_pending_pods", "unschedulable"] == 0
    assert bound["scheduler_queue_incoming_pods_total", "NodeAdd", "active"] == 1
    assert ("scheduler_unschedulable_pods", fit, PROFILE) not in bound


async def test_gated_pod_counts_as_incoming_unschedulable_and_as_gated():
    async with observed_cluster(nodes=1) as (c, observation):
        await c.create(make_pod("later").gate("wait"))
        await c.settle()
        found = samples(observation)

    incoming = "scheduler_queue_incoming_pods_total"
    assert found[incoming, "UnschedulablePodAdd", "unschedulable"] == 1
    assert found["scheduler_pending_pods", "gated"] == 1


POINT = "scheduler_framework_extension_point_duration_seconds_count"


async def test_extension_points_are_timed_when_they_have_plugins():
    async with observed_cluster(nodes=2) as (c, observation):
        await c.create(make_pod("web"))
        await c.settle()
        found = samples(observation)

    for point in ("PreFilter", "Filter", "PreScore", "Score", "Bind"):
        assert found[POINT, *sorted((point, "Success", PROFILE))] == 1
    assert (POINT, *sorted(("PostBind", "Success", PROFILE))) not in found


async def test_extension_point_that_breaks_is_an_error():
    class Broken:
        name = "Broken"

        def score(self, state, pod, node):
            raise RuntimeError("no")

    async with observed_cluster(nodes=2, plugins=[Broken()]) as (c, observation):
        await c.create(make_pod("web"))
        await c.settle()
        found = samples(observation)

    assert found[POINT, *sorted(("Error", "Score", PROFILE))] == 1
    assert (POINT, *sorted(("Score", "Success", PROFILE))) not in found
    assert found["scheduler_schedule_attempts_total", PROFILE, "error"] == 1


async def test_time_at_permit_is_measured():
    class Later:
        name = "Later"

        def permit(self, state, pod, node_name):
            return PermitResult(wait(), 7)

    async with observed_cluster(nodes=1, plugins=[Later()]) as (c, observation):
        await c.create(make_pod("web"))
        await c.advance(7.5)
        found = samples(observation)

    assert found["scheduler_permit_wait_duration_seconds_sum", "Unschedulable"] == pytest.approx(7)
    assert found[POINT, *sorted(("Permit", PROFILE, "Wait"))] >= 1


async def test_probe_measures_how_long_the_loop_was_kept(monkeypatch):
    at = 0.0
    monkeypatch.setattr("ksched.daemon.observation.stopwatch", lambda: at)
    observation = Observation(Metrics())
    lag = observation.metrics.event_loop_lag.of()

    class Slow(LoopClock):
        async def sleep(self, seconds):
            nonlocal at
            at += seconds + (0.5 if lag.count else 0.0)
            await asyncio.sleep(seconds)

    async with asyncio.TaskGroup() as tasks:
        probe = tasks.create_task(observation.probe_event_loop(Slow()))
        await asyncio.sleep(2.5 * LAG_PROBE_SECONDS)
        probe.cancel()

    assert lag.count == 2
    assert lag.sum == pytest.approx(0.5)


async def test_groups_are_counted_by_result_and_state():
    async with observed_cluster(nodes=2, config=configured("annotations")) as (c, observation):
        await c.create(*Gang("annotations", "whole", 2).pods())
        await c.create(*Gang("annotations", "wide", 5, cpu="2").pods())
        await c.create(Gang("annotations", "late", 2).pod(0))
        await c.settle()
        found = samples(observation)
        attempts = "scheduler_podgroup_schedule_attempts_total"
        assert found[attempts, PROFILE, "scheduled"] == 1
        assert found[attempts, PROFILE, "unschedulable"] >= 1
        durations = "scheduler_podgroup_scheduling_attempt_duration_seconds_count"
        assert found[durations, PROFILE, "scheduled"] == 1
        decided = found[attempts, PROFILE, "scheduled"] + found[attempts, PROFILE, "unschedulable"]
        assert found["scheduler_podgroup_scheduling_algorithm_duration_seconds_count",] == decided
        states = {state: found["ksched_groups", state] for state in ("placed", "short")}
        assert states == {"placed": 1, "short": 1}
        assert found["ksched_groups", "incomplete"] == 1
        assert found["ksched_group_short_slots",] == 3
        assert found["ksched_group_broken",] == 0

        await c.patch("default/whole-1", {"status": {"phase": "Succeeded"}}, subresource="status")
        await c.advance(10)
        found = samples(observation)
        assert found["ksched_group_broken",] == 0, "a job that is done is not broken"
        assert found["ksched_groups", "ended"] == 1

        await c.delete("default/whole-0", grace_seconds=0)
        await c.advance(10)
        assert samples(observation)["ksched_group_broken",] == 0, "nothing of it is left"


async def test_a_group_that_lost_a_member_is_broken():
    async with observed_cluster(nodes=2, config=configured("annotations")) as (c, observation):
        await c.create(*Gang("annotations", "whole", 2).pods())
        await c.settle()
        await c.delete("default/whole-0", grace_seconds=0)
        await c.advance(10)
        assert samples(observation)["ksched_group_broken",] == 1


async def test_placements_that_are_undone_are_counted():
    async with observed_cluster(nodes=2, config=configured("annotations")) as (c, observation):
        gang = Gang("annotations", "apart", 3)
        await c.create(
            *(
                pod.label({"app": "a"}).pod_anti_affinity("kubernetes.io/hostname", {"app": "a"})
                for pod in gang.pods()
            )
        )
        await c.settle()
        assert samples(observation)["ksched_group_undone_placements_total",] >= 2


async def test_without_groups_there_are_no_gauges_of_groups():
    async with observed_cluster(nodes=1) as (c, observation):
        await c.create(make_pod("web"))
        await c.settle()
        found = samples(observation)
        assert not [key for key in found if key[0].startswith("ksched_groups")]
        assert found["scheduler_podgroup_scheduling_algorithm_duration_seconds_count",] == 0
