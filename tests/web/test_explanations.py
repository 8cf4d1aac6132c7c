"""Pods explained on the debug paths: what is said, by which process, and how many at a time.

Covers ``ksched.web.explanation_process`` and ``ksched.journal.whole_state`` too.
"""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import msgspec
import pytest

from ksched.apiserver.in_process import InProcessTransport
from ksched.client.rest import ApiClient
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import KschedError
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.explaining import explain
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.device_builders import (
    make_device_class,
    make_resource_claim,
    make_slice,
    with_claim,
)
from ksched.web import explanations
from ksched.web.explanation_process import explained, explanation_view
from ksched.web.explanations import Explanations, NotExplained, state_lines
from ksched.web.rendering import Renderer
from lab.dashboard import served
from lab.gangs import priority_class


async def view_of(c, name):
    """What the process says of a pod, made in this one."""
    uid = c.scheduler.pod_reflector.objects[f"default/{name}"].metadata.uid
    return await explained(b"".join(state_lines(c.scheduler)).splitlines(keepends=True), uid)


async def listed_view_of(c, name):
    """The same by ``ksched explain``, which lists the cluster."""
    client = ApiClient(InProcessTransport(c.server, "reader"), c.clock)
    copy = ClusterCopy(client, SchedulerConfiguration(), c.clock)
    await copy.read()
    found = await explain(copy, await copy.read_pod("default", name))
    return explanation_view(found, found.notes)


async def test_it_says_what_ksched_explain_says():
    nodes = [
        make_node("small").capacity(cpu="2"),
        make_node("tainted").capacity(cpu="8").taint("team", "a"),
        make_node("full").capacity(cpu="4"),
    ]
    async with cluster(nodes) as c:
        await c.create(make_pod("runs").req(cpu="3").node("full"))
        await c.create(make_pod("large").req(cpu="3"), make_pod("tiny").req(cpu="1"))
        await c.settle()
        assert c.bound("tiny")
        for name in ("large", "tiny", "runs"):
            view = await view_of(c, name)
            assert view == await listed_view_of(c, name)
            assert msgspec.json.decode(msgspec.json.encode(view)) == view
        large = await view_of(c, "large")
    assert large["message"].startswith("0/3 nodes are available: 1 node(s) had untolerated taint")
    reasons = {
        (one["count"], one["rejections"][0]["plugin"], *one["examples"])
        for one in large["rejected"]
    }
    assert reasons == {(2, "NodeResourcesFit", "full", "small"), (1, "TaintToleration", "tainted")}
    steps = [(one["kind"], one["steps"]) for one in large["changes"]]
    assert ("pod", ["tolerate team=a:NoSchedule"]) in steps
    assert ("eviction", ["evict default/runs"]) in steps


async def test_a_nomination_that_the_api_server_does_not_show_counts():
    async with cluster([make_node("n1").capacity(cpu="4")]) as c:
        gated = {"spec": {"schedulingGates": [{"name": "example.com/wait"}]}}
        await c.create(priority_class(10))
        important = {"spec": {**gated["spec"], "priorityClassName": "p10"}}
        await c.create(make_pod("chief").req(cpu="3").merge(important))
        await c.create(make_pod("late").req(cpu="3").merge(gated))
        await c.settle()
        assert (await view_of(c, "late"))["feasibleCount"] == 1

        (chief,) = [one for one in c.scheduler.pending if one.name == "chief"]
        c.scheduler.nominator.add(chief, "n1")

        view = await view_of(c, "late")
        assert (view["feasibleCount"], view["rejected"][0]["count"]) == (0, 1)
        assert view["gates"] == [
            "SchedulingGates: waiting for scheduling gates: [example.com/wait]"
        ]


async def test_pods_that_are_being_bound_and_claims_in_flight_count():
    async with cluster([make_node("n1").capacity(cpu="4")]) as c:
        await c.create(make_device_class(), make_slice("n1").device("d1"))
        await c.create(*(make_resource_claim(f"gpu{number}").request() for number in range(2)))
        await c.settle()
        scheduler, states = c.scheduler, []

        class Noting:
            def began(self, queued, profile):
                pass

            def ended(self, outcome):
                states.append(b"".join(state_lines(scheduler)))

        scheduler.cycle.observer = Noting()
        await c.create(with_claim(make_pod("web").req(cpu="3"), "gpu0"))
        await c.settle()
        await c.create(with_claim(make_pod("late").req(cpu="3"), "gpu1"))
        await c.settle()
        late = scheduler.pod_reflector.objects["default/late"].metadata.uid
        web = scheduler.pod_reflector.objects["default/web"].metadata.uid
        being_bound, both = (one.splitlines(keepends=True) for one in states[:2])
        assert (await explained(being_bound, web))["node"] == "n1"
        assert b'"inFlight":{"' in states[0]
        view = await explained(both, late)
    plugins = {one["plugin"] for one in view["rejected"][0]["rejections"]}
    assert plugins == {"NodeResourcesFit", "DynamicResources"}


async def test_nothing_is_left_out_for_the_process():
    async with cluster([make_node("n1").annotation({"rack": "r1"})]) as c:
        await c.create(make_pod("web").annotation({"team": "shop"}))
        await c.settle()
        lines = b"".join(state_lines(c.scheduler))
    assert b'"rack":"r1"' in lines
    assert b'"team":"shop"' in lines


def noted_processes(monkeypatch):
    """The processes that are started from now on."""
    started = []
    start = asyncio.create_subprocess_exec

    async def noted(*command, **options):
        started.append(await start(*command, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    return started


@pytest.mark.real_time
async def test_one_process_explains_for_all_readers(monkeypatch):
    started = noted_processes(monkeypatch)
    async with served(3) as (c, url), aiohttp.ClientSession(url.removesuffix("ui/")) as session:
        await c.create(make_pod("large").req(cpu="1000"))
        await c.settle()

        async def read(name):
            async with session.get(f"debug/explain/default/{name}") as answer:
                return answer.status, await answer.text()

        both = await asyncio.gather(read("large"), read("large"))
        assert both[0] == both[1]
        status, text = both[0]
        assert status == 200, text
        view = msgspec.json.decode(text)
        assert view["changes"][0]["steps"] == ["request 968 cpu less (32 instead of 1000)"]
        assert [process.returncode for process in started] == [0]
        assert await read("nobody") == (
            404,
            "pod default/nobody: not known to this scheduler\n",
        )


@pytest.mark.real_time
async def test_a_process_that_takes_too_long_is_ended(monkeypatch, tmp_path):
    hanging = tmp_path / "hanging"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(hanging))
    monkeypatch.setattr(explanations, "SECONDS", 1.0)
    started = noted_processes(monkeypatch)
    async with served(1) as (c, _):
        await c.create(make_pod("large").req(cpu="1000"))
        await c.settle()
        uid = c.scheduler.pod_reflector.objects["default/large"].metadata.uid
        made = Explanations(Renderer())
        with pytest.raises(NotExplained, match="not explained within 1 s"):
            await made.page(c.scheduler, uid)
        assert [process.returncode for process in started] == [-9]


async def test_only_a_few_wait(monkeypatch):
    monkeypatch.setattr(explanations, "MAX_WAITING", 0)
    async with cluster(1) as c:
        await c.create(make_pod("web"))
        await c.settle()
        pod = c.scheduler.pod_reflector.objects["default/web"].metadata
        answer = await Explanations(Renderer()).response(c.scheduler, pod)
    assert answer.status == 429
    assert answer.text == "pod default/web: 0 explanations are waited for, try again later\n"


async def test_a_pod_that_is_gone_is_not_explained():
    async with cluster(1) as c:
        with pytest.raises(KschedError, match="no longer, one of this scheduler's"):
            await explained(b"".join(state_lines(c.scheduler)).splitlines(keepends=True), "x")
