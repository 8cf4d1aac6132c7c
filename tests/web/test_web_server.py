"""The endpoints over a real socket.

Covers ``ksched.web.views`` too.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import asynccontextmanager

import aiohttp
import pytest
import trustme
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from ksched.daemon.observation import Observation
from ksched.metrics import Metrics
from ksched.testing.builders import make_pod
from ksched.testing.harness import cluster
from ksched.web.web_server import WebServer
from lab.gangs import Gang, configured

pytestmark = pytest.mark.real_time

LOOPBACK = "127.0.0.1"


class Site:
    """A cluster whose scheduler is asked over HTTP; ``problem`` makes it unready."""

    def __init__(self, cluster, session, url, observation):
        self.cluster, self.session, self.url, self.problem = cluster, session, url, ""
        self.observation, self.is_leading = observation, True

    async def get(self, path, **options):
        async with self.session.get(self.url + path, **options) as answer:
            return answer.status, await answer.text()

    async def json(self, path):
        async with self.session.get(self.url + path) as answer:
            assert answer.status == 200
            return await answer.json()


@asynccontextmanager
async def serving(tls=None, access=None, flags=None, has_statusz=True, **options):
    observation = Observation(Metrics())
    async with cluster(observer=observation, **options) as c, aiohttp.ClientSession() as session:
        observation.attach(c.scheduler)
        site = Site(c, session, "", observation)
        server = WebServer(
            c.scheduler,
            observation.metrics,
            live={"leaderElection": lambda: ""},
            ready={"informer-sync": lambda: site.problem},
            access=access,
            flags=flags,
            has_statusz=has_statusz,
            is_leading=lambda: site.is_leading,
        )
        async with server.listening(LOOPBACK, 0, tls) as site.url:
            yield site


async def test_health_endpoints_differ_in_their_checks():
    async with serving() as site:
        site.problem = "still lister"

        assert await site.get("/healthz") == (200, "ok")
        assert await site.get("/livez?verbose") == (
            200,
            "[+]ping ok\n[+]leaderElection ok\nlivez check passed\n",
        )
        status, text = await site.get("/readyz")
        assert status == 500
        assert "[-]informer-sync failed: still lister" in text
        assert await site.get("/readyz?exclude=informer-sync") == (200, "ok")
        assert await site.get("/readyz/informer-sync") == (500, "still lister")
        assert (await site.get("/readyz/nonsense"))[0] == 404
        site.problem = ""
        assert await site.get("/readyz") == (200, "ok")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:10259", 200),
        ("localhost", 200),
        ("scheduler.localhost:10259", 200),
        ("127.0.0.1:10259", 200),
        ("[::1]:10259", 200),
        ("pods.example:10259", 403),
        ("localhost.example", 403),
        ("127.0.0.1.example", 403),
        ("pods.example:x:y", 403),
        ("", 200),
    ],
)
async def test_without_authentication_only_names_of_this_machine_are_answered(host, status):
    async with serving() as site:
        for path in ("/debug/queue", "/ui/", "/healthz"):
            assert (await site.get(path, headers={"Host": host}))[0] == status


async def test_metrics_are_those_of_the_scheduler_and_the_process():
    async with serving(nodes=1) as site:
        await site.cluster.create(make_pod("web"))
        await site.cluster.settle()
        status, text = await site.get("/metrics")

    assert status == 200
    lines = text.splitlines()
    profile = 'profile="default-scheduler",result="scheduled"'
    assert f"scheduler_schedule_attempts_total{{{profile}}} 1.0" in lines
    assert 'scheduler_cache_size{type="pods"} 1.0' in lines
    assert "# TYPE scheduler_pod_scheduling_attempts histogram" in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)


async def test_metrics_are_written_as_the_reader_asks():
    async with serving() as site:
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        _, text = await site.get("/metrics", headers=accept)

    assert text.endswith("# EOF\n")


async def test_configz_is_the_whole_configuration():
    async with serving() as site:
        config = (await site.json("/configz"))["componentconfig"]

    assert config["kind"] == "KubeSchedulerConfiguration"
    assert config["profiles"][0]["schedulerName"] == "default-scheduler"


async def test_queue_lists_pods_in_the_order_of_their_turn():
    async with serving() as site:
        await site.cluster.create(*(make_pod(f"p{i}").gate("wait") for i in range(3)))
        await site.cluster.settle()
        queue = await site.json("/debug/queue?limit=2")

    assert queue["counts"]["gated"] == 3
    assert [pod["pod"] for pod in queue["pods"]["gated"]] == ["default/p0", "default/p1"]
    assert queue["pods"]["gated"][0]["gatedBy"] == "SchedulingGates"


async def test_story_tells_where_a_pod_went_and_why():
    async with serving(nodes=1) as site:
        await site.cluster.create(make_pod("big").req(cpu="100"), make_pod("web"))
        await site.cluster.settle()
        big = await site.json("/debug/story/default/big")
        web = await site.json("/debug/story/default/web")
        unknown = await site.get("/debug/story/default/nobody")

    assert big["place"] == "unschedulable"
    assert [step["to"] for step in big["transitions"]] == ["active", "in flight", "unschedulable"]
    assert big["decisions"][0]["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert (web["place"], web["node"], web["assumed"]) == ("assigned", "n1", False)
    assert unknown == (404, "pod default/nobody: not known to this scheduler\n")


async def test_story_of_a_deleted_pod_is_still_told():
    async with serving(nodes=1) as site:
        await site.cluster.create(make_pod("big").req(cpu="100"))
        await site.cluster.settle()
        await site.cluster.delete("big", grace_seconds=0)
        await site.cluster.settle()
        story = await site.json("/debug/story/default/big")

    assert story["place"] == "absent"
    assert story["transitions"][-1]["cause"] == "PodDeleted"


async def test_decisions_are_newest_first():
    async with serving(nodes=1) as site:
        for name in ("a", "b"):
            await site.cluster.create(make_pod(name))
            await site.cluster.settle()
        decisions = await site.json("/debug/decisions")
        newest = await site.json("/debug/decisions?limit=1")

    assert [one["pod"] for one in decisions] == ["default/b", "default/a"]
    assert newest == decisions[:1]


@pytest.mark.parametrize("limit", ["0", "-1", "many", "10001"])
async def test_nonsense_limit_is_refused(limit):
    async with serving() as site:
        status, text = await site.get(f"/debug/queue?limit={limit}")

    assert status == 400
    assert text == f"limit: got {limit!r}, wanted 1 to 10000\n"


@pytest.mark.parametrize("limit", ["9" * 5000, "\u0665", "%00", "1e3", " 1"])
async def test_limit_that_is_no_number_is_refused(limit):
    async with serving() as site:
        status, text = await site.get(f"/debug/queue?limit={limit}")

    assert status == 400
    assert text.startswith("limit: got ")
    assert len(text) < 200


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=x.y",
        "application/openmetrics-text; version=" + "9" * 5000,
        "application/openmetrics-text; version=1.0.0; escaping=none-of-these",
        "text/plain; version=",
        "text/plain; version=1.0.0.\u00e4",
        ";;;,,,;=;version",
    ],
)
async def test_malformed_accept_header_does_no_harm(accept):
    async with serving() as site:
        status, text = await site.get("/metrics", headers={"Accept": accept})

    assert status == 200
    assert "scheduler_pod_scheduling_attempts" in text


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
async def test_metrics_in_pieces_are_those_in_one(accept):
    async with serving() as site:
        counter = site.observation.metrics.queue_incoming_pods
        for number in range(1000):
            counter.increment("active", f'"event"\n# {number}')
        whole = CollectorRegistry()
        whole.register(site.observation.metrics)
        encode, _ = choose_encoder(accept)
        expected = encode(whole).decode()
        _, text = await site.get("/metrics", headers={"Accept": accept})

    family = [line for line in expected.splitlines() if "queue_incoming_pods" in line]
    assert len(family) >= 1002
    assert [line for line in text.splitlines() if "queue_incoming_pods" in line] == family
    assert text.count("# EOF") == expected.count("# EOF")


async def test_fault_of_a_view_is_logged_and_not_told(caplog, monkeypatch):
    def broken(scheduler, limit):
        raise RuntimeError("hunter2")

    monkeypatch.setattr("ksched.web.web_server.queue_view", broken)
    async with serving() as site:
        status, text = await site.get("/debug/queue")

    assert (status, text) == (500, "internal error\n")
    assert [record.message for record in caplog.records if record.exc_info] == ["request failed"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_changed(method):
    async with (
        serving() as site,
        site.session.request(method, site.url + "/debug/queue") as answer,
    ):
        assert answer.status == 405


async def test_port_that_is_taken_is_an_error():
    async with serving() as site:
        port = int(site.url.rpartition(":")[2])
        other = WebServer(site.cluster.scheduler, Metrics(), live={}, ready={}, access=None)
        with pytest.raises(OSError, match=r"(?i)address already in use"):
            await other.listening(LOOPBACK, port).__aenter__()
        with socket.create_connection((LOOPBACK, port)):
            pass


async def test_https_with_a_certificate():
    authority = trustme.CA()
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(LOOPBACK).configure_cert(server_context)
    client_context = ssl.create_default_context()
    authority.configure_trust(client_context)

    async with serving(tls=lambda address: server_context) as site:
        assert site.url.startswith("https://")
        assert await site.get("/healthz", ssl=client_context) == (200, "ok")


async def test_groups_are_listed_with_what_they_lack():
    config = configured("annotations")
    async with serving(nodes=1, config=config) as site:
        whole, wide, late = (
            Gang("annotations", "whole", 2),
            Gang("annotations", "wide", 3, cpu="4"),
            Gang("annotations", "late", 2),
        )
        await site.cluster.create(*whole.pods(), *wide.pods(), late.pod(0))
        await site.cluster.settle()
        view = await site.json("/debug/groups")
        assert view["count"] == 3
        found = {one.pop("group"): one for one in view["groups"]}
        assert found["default/whole"] == {
            "dialect": "annotations",
            "minimum": 2,
            "state": "placed",
            "members": {"bound": 2},
            "wasComplete": True,
            "waitsFor": "",
            "cycle": [],
        }
        assert found["default/wide"]["members"] == {"available": 3}
        assert found["default/wide"]["waitsFor"] == "0 of 3 fit; short of 3 × 4 cpu"
        assert found["default/late"]["waitsFor"] == "1 of 2 pods exist"
        assert len((await site.json("/debug/groups?limit=1"))["groups"]) == 1
        [late_view] = (await site.json("/debug/groups/default/late"))["groups"]
        assert late_view["holders"] == []
        assert late_view["pods"] == [
            {"pod": "default/late-0", "role": "", "state": "available", "node": ""}
        ]
        status, text = await site.get("/debug/groups/default/none")
        assert (status, text) == (404, "pod group default/none: not known to this scheduler\n")


async def test_index_lists_what_is_served():
    async with serving(flags={}) as site:
        paths = (await site.json("/"))["paths"]

    assert {"/flagz", "/statusz", "/metrics/slis", "/metrics/resources"} <= set(paths)


async def test_flags_and_status_are_pages_for_people():
    async with serving(flags={"v": "2"}) as site:
        _, flags = await site.get("/flagz")
        _, status = await site.get("/statusz")
        accept = {"Accept": "application/json;g=config.k8s.io;v=v1beta1;as=Flagz"}
        _, structured = await site.get("/flagz", headers=accept)
        refused, _ = await site.get("/statusz", headers=accept)

    assert "\nv=2\n" in flags
    assert (
        "\nPaths: /configz /debug /flagz /healthz /livez /metrics /readyz /reload /statusz /ui\n"
        in status
    )
    assert '"flags":{"v":"2"}' in structured
    assert refused == 406


async def test_pages_behind_gates_that_are_off_do_not_exist():
    async with serving(flags=None, has_statusz=False) as site:
        assert [(await site.get(path))[0] for path in ("/flagz", "/statusz")] == [404, 404]


async def test_results_of_probes_are_metrics():
    async with serving() as site:
        site.problem = "still listing"
        await site.get("/readyz")
        _, text = await site.get("/metrics/slis")

    assert 'kubernetes_healthcheck{name="informer-sync",type="readyz"} 0.0' in text.splitlines()


async def test_resources_of_pods_are_shown_by_the_leader_only():
    async with serving(nodes=1) as site:
        await site.cluster.create(make_pod("web").req(cpu="100m"), make_pod("big").req(cpu="100"))
        await site.cluster.settle()
        status, text = await site.get("/metrics/resources")
        accept = {"Accept": "application/openmetrics-text"}
        _, openmetrics = await site.get("/metrics/resources", headers=accept)
        site.is_leading = False
        other = await site.get("/metrics/resources")

    assert status == 200
    found = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(found) == 2
    assert 'node="n1",pod="web"' in "".join(found)
    assert 'node="",pod="big"' in "".join(found)
    assert openmetrics == text + "# EOF\n"
    assert other == (200, "")
