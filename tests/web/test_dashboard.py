"""The dashboard: its files over a socket, what it reads, and the page in a real browser.

Covers ``ksched.web.dashboard_views`` too; the browser's tests are skipped where there is no
Chromium.
"""

from __future__ import annotations

import json
import re

import aiohttp
import pytest

from ksched.metrics import Metrics
from ksched.testing.builders import make_node, make_pod
from ksched.web.dashboard import FILES
from ksched.web.dashboard_views import node_view, nodes_pieces, overview_view
from lab.browser import find_browser, opened
from lab.dashboard import SHOWN, served, smoothness
from lab.source_tree import ROOT

pytestmark = pytest.mark.real_time

ZONE = "topology.kubernetes.io/zone"
UI = ROOT / "ksched/web/ui"
in_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium on the PATH")


def test_every_file_is_served_and_loads_nothing_from_elsewhere():
    assert {name for name, _ in FILES.values()} == {file.name for file in UI.iterdir()}
    for file in UI.iterdir():
        addresses = set(re.findall(r"https?://[^\s\"'`]+", file.read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg"}, file.name


async def test_files_forbid_foreign_content_and_are_sent_once():
    async with served(1) as (_, url), aiohttp.ClientSession() as session:
        for path, (_name, content_type) in FILES.items():
            async with session.get(url + path) as answer:
                assert answer.status == 200
                assert answer.content_type == content_type
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
                tag = answer.headers["ETag"]
            async with session.get(url + path, headers={"If-None-Match": tag}) as answer:
                assert answer.status == 304
        async with session.get(url + "nothing.js") as answer:
            assert answer.status == 404


async def test_nodes_are_shown_with_their_use_in_thousandths():
    async with served(0) as (c, _):
        await c.add_nodes(
            [
                make_node("a")
                .label({ZONE: "west"})
                .capacity({"cpu": "4", "memory": "8Gi", "pods": "10"}),
                make_node("b").capacity({"cpu": "4", "pods": "10", "example.com/gpu": "2"}),
            ]
        )
        await c.create(make_pod("one").req({"cpu": "1", "memory": "2Gi"}).node("a"))
        gpu = make_pod("two").req({"example.com/gpu": "1"}).node("b").to_dict()
        resources = gpu["spec"]["containers"][0]["resources"]
        resources["limits"] = resources["requests"]
        await c.create(gpu)
        await c.settle()

        found = json.loads(b"".join(nodes_pieces(c.scheduler)))

        assert found["resources"] == ["cpu", "memory", "example.com/gpu"]
        assert sorted(found["nodes"]) == [
            ["a", "west", 0, 1, 10, 250, 250, -1],
            ["b", "", 0, 1, 10, 0, 0, 500],
        ]
        view = node_view(c.scheduler, "a", 10)
        assert view is not None
        assert [one["pod"] for one in view["pods"]] == ["default/one"]
        assert node_view(c.scheduler, "unknown", 10) is None


async def test_the_overview_counts_what_moves_through_the_queue():
    metrics = Metrics()
    async with served(2) as (c, _):
        for number in range(3):
            await c.create(make_pod(f"small{number}").req({"cpu": "1"}))
        await c.create(make_pod("large").req({"cpu": "1000"}))
        await c.settle()

        view = overview_view(c.scheduler, metrics, lambda: {"isLeading": True})

        flows = {(one["from"], one["to"]): one["pods"] for one in view["flows"]}
        assert flows["active", "in flight"] == 4
        assert flows["in flight", "unschedulable"] == 1
        assert view["places"]["unschedulable"] == 1
        assert view["election"] == {"isLeading": True}
        rejecting = {one["plugin"]: one["rejectedPods"] for one in view["plugins"]}
        assert rejecting["NodeResourcesFit"] == 1


@in_browser
async def test_the_page_shows_a_running_cluster_and_opens_pods_and_nodes_by_keyboard(tmp_path):
    async with served(50) as (c, url):
        for number in range(30):
            await c.create(make_pod(f"pod{number}").req({"cpu": "1"}))
        await c.create(make_pod("large").req({"cpu": "1000"}))
        await c.settle()
        async with opened(url) as page:
            await page.until(SHOWN)
            await page.until_text("#pending-rows", "default/large")
            assert "50 nodes" in await page.text("#nodes-summary")

            await page.press("1")
            await page.press("Tab", 9)  # the choice of the resource
            await page.press("Tab", 9)  # the nodes
            await page.press("ArrowRight", 39)
            assert re.match(r"node-\d+: cpu \d+ %", await page.text("#node-line"))
            await page.press("Enter", 13)
            await page.until_text("dialog[open] #details-title", "node node-")
            await page.press("Escape", 27)
            await page.until("!document.querySelector('#details').open")

            await page.evaluate("location.hash = 'pod/default/large'")
            await page.until_text("#details-body", "Insufficient cpu")
            await page.until_text(".explanation", "Each of these would make it fit")
            assert "request 968 cpu less (32 instead of 1000)" in await page.text(".explanation")
            assert "50NodeResourcesFitInsufficient cpu" in await page.text(".explanation")
            await page.screenshot(tmp_path / "dashboard.png")
            await page.evaluate("location.hash = 'pod/default/pod0'")
            await page.until_text("#details-body button", "Explain why it is there")
            assert (await smoothness(page, 1.0)).first_paint > 0
        assert page.complaints == []


@in_browser
async def test_a_page_is_paused_and_goes_on():
    async with served(3) as (c, url), opened(url) as page:
        await page.until_text("#connection", "live")
        await page.press("p")
        assert await page.text("#connection") == "paused"
        await c.create(make_pod("one"))
        await page.press("p")
        await page.until_text("#decision-rows", "default/one")
        assert await page.text("#connection") == "live"
