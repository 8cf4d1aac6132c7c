from change_freeze import FROZEN, REASON, URGENT, ChangeFreeze

from ksched.framework import SUCCESS
from ksched.testing import make_node, make_pod
from ksched.testing.plugin_runner import run_filter

PLUGINS = {"ChangeFreeze": ChangeFreeze}


def test_only_frozen_nodes_are_rejected():
    nodes = [make_node("frozen").label({FROZEN: "true"}).obj(), make_node("free").obj()]
    answers = run_filter(ChangeFreeze(None, None), make_pod("web").obj(), nodes)
    assert answers["frozen"].reasons == (REASON,)
    assert answers["free"] == SUCCESS


async def test_an_urgent_pod_may_go_there(cluster):
    async with cluster([make_node("n1").label({FROZEN: "true"})], plugins=PLUGINS) as c:
        await c.create(make_pod("web"), make_pod("fix").label({URGENT: "true"}))
        await c.settle()
        assert (c.bound("web"), c.bound("fix")) == (None, "n1")
        assert c.message("web").startswith(f"0/1 nodes are available: 1 {REASON}.")


async def test_the_end_of_the_freeze_wakes_the_pod(cluster):
    async with cluster([make_node("n1").label({FROZEN: "true"})], plugins=PLUGINS) as c:
        await c.create(make_pod("web"))
        await c.advance(20)
        await c.patch_node("n1", {"metadata": {"labels": {FROZEN: None}}})
        await c.settle()
        assert c.bound("web") == "n1"
