from pathlib import Path

import yaml
from zone_quota import ZONE, ZoneQuotas

from ksched.testing import make_node, make_pod

PLUGINS = {"ZoneQuotas": ZoneQuotas}
HERE = Path(__file__).parents[1]
DEFINITION = yaml.safe_load((HERE / "definition.yaml").read_text())
IMPORTANT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "important"},
    "value": 1000,
}
REASON = "node(s) were in a zone whose quota for this app is used up"


def quota(max_pods, name="web"):
    known = yaml.safe_load((HERE / "quota.yaml").read_text())
    return {**known, "metadata": {"name": name}, "spec": {"maxPods": max_pods}}


def nodes(*zones):
    return [make_node(f"n{i}").label({ZONE: zone}) for i, zone in enumerate(zones)]


def pods(count, app="web"):
    """No kubelet ends pods here: they end at once."""
    at_once = {"spec": {"terminationGracePeriodSeconds": 0}}
    return [make_pod(f"{app}{i}").label(app=app).merge(at_once) for i in range(count)]


def bound(c, app="web"):
    """The nodes of the app's pods."""
    pods = (pod for pod in c.pods() if pod["metadata"].get("labels", {}).get("app") == app)
    return [node for pod in pods if (node := pod["spec"].get("nodeName"))]


async def test_a_zone_takes_what_the_quota_says(cluster):
    async with cluster(nodes("a", "a", "b"), plugins=PLUGINS) as c:
        await c.create(DEFINITION, quota(2))
        await c.advance(60)
        await c.create(*pods(6), *pods(3, "free"), make_pod("plain"))
        await c.settle()
        assert sorted(name == "n2" for name in bound(c)) == [False, False, True, True]
        assert len(bound(c, "free")) == 3
        assert c.bound("plain")
        [waiting, _] = [f"web{i}" for i in range(6) if not c.bound(f"web{i}")]
        assert f"3 {REASON}" in c.message(waiting)


async def test_a_larger_quota_wakes_its_pods_and_a_smaller_one_nobody(cluster):
    async with cluster(nodes("a", "b"), plugins=PLUGINS) as c:
        await c.create(DEFINITION, quota(1), quota(0, "db"))
        await c.advance(60)
        await c.create(*pods(4), *pods(1, "db"))
        await c.settle()
        assert len(bound(c)) == 2
        assert not bound(c, "db")

        await c.replace(quota(0))
        await c.replace(quota(2))
        await c.settle()
        assert len(bound(c)) == 4
        assert not bound(c, "db")


async def test_a_pod_that_goes_and_a_quota_that_goes_make_room(cluster):
    async with cluster(nodes("a"), plugins=PLUGINS) as c:
        await c.create(DEFINITION, quota(1))
        await c.advance(60)
        await c.create(*pods(3))
        await c.settle()
        assert len(bound(c)) == 1
        [first] = [f"web{i}" for i in range(3) if c.bound(f"web{i}")]
        await c.delete(first, grace_seconds=0)
        await c.advance(60)
        assert len(bound(c)) == 1
        await c.delete_object(quota(1))
        await c.settle()
        assert len(bound(c)) == 2


async def test_preemption_counts_the_pods_that_it_would_evict(cluster):
    """The quota is used up by pods of lower priority: one of them has to go."""
    async with cluster(nodes("a", "a"), plugins=PLUGINS) as c:
        await c.create(DEFINITION, quota(2))
        await c.advance(60)
        await c.create(*pods(2))
        await c.settle()
        assert len(bound(c)) == 2
        await c.create(IMPORTANT)
        urgent = make_pod("urgent").label(app="web")
        await c.create(urgent.merge({"spec": {"priorityClassName": "important"}}))
        await c.advance(60)
        assert c.bound("urgent")
        assert len(bound(c)) == 2
