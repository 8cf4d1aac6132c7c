"""Predictions against what then really happens on the embedded API server.

Covers ``ksched.what_if.scenario``, ``ksched.what_if.settling``, ``ksched.what_if.subjects``,
``ksched.what_if.new_nodes`` and ``ksched.what_if.node_use`` too.
"""

from __future__ import annotations

import pytest

from ksched.configuration.extenders import Extender
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import KschedError
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.harness import beside
from ksched.what_if.changes import AddNodes, Changes, RemoveTaint
from ksched.what_if.draining import UNSCHEDULABLE
from ksched.what_if.predicting import predict
from ksched.what_if.prediction import Cause
from ksched.what_if.settling import IN_VAIN
from lab.what_if_clusters import (
    READER,
    Recreating,
    copied,
    follow,
    priority_classes,
    random_source,
    states,
)

FLUSHED_SECONDS = 400.0
"""After that every pending pod was tried again, whatever it waits for."""


async def predicted(c, changes, **options):
    return await predict(await copied(c), changes, **options)


def final_states(before, prediction):
    """What the prediction says of all pods, in the form of ``states``."""
    left = {one.pod for one in prediction.departures}
    after = {key: one for key, one in before.items() if key.replace("/pod/", "/") not in left}
    for one in prediction.fates:
        after[one.workload] = (one.after, one.message)
    return after


async def drain(c, nodes, staying):
    """Do what kubectl drain does, and the node controller, node by node."""
    for name in nodes:
        known = next(one for one in c.nodes() if one["metadata"]["name"] == name)
        taints = known["spec"].get("taints") or []
        if (UNSCHEDULABLE, "NoSchedule") not in {(one["key"], one["effect"]) for one in taints}:
            taints = [*taints, {"key": UNSCHEDULABLE, "effect": "NoSchedule"}]
        spec = {**known["spec"], "unschedulable": True, "taints": taints}
        await c.replace({**known, "spec": spec})
    for name in nodes:
        keys = [
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in c.pods()
            if pod["spec"].get("nodeName") == name
        ]
        for key in sorted(keys):
            if key not in staying:
                await c.delete(key, grace_seconds=0)
                await c.advance(1)


async def make_random_cluster(c, source, *, with_priorities):
    """Nodes, pods on them and pending pods; returns the manifests by workload, and the nodes."""
    names = [f"n{number}" for number in range(source.random.randint(3, 8))]
    await c.create(*source.cluster(names), *priority_classes())
    manifests = {}
    for number in range(source.random.randint(6, 24)):
        pod = source.placed(number, names, with_priorities=with_priorities)
        (created,) = await c.create(pod)
        # Of victims that are equal otherwise the youngest is chosen, not a random one.
        key = f"{created['metadata']['namespace']}/{created['metadata']['name']}"
        started = {"startTime": f"2026-01-01T00:00:{number:02d}Z"}
        await c.patch(key, {"status": started}, subresource="status")
        owners = pod["metadata"].get("ownerReferences")
        if owners:
            kind, name = owners[0]["kind"].lower(), owners[0]["name"]
            manifests[f"{pod['metadata']['namespace']}/{kind}/{name}"] = pod
    for number in range(source.random.randint(0, 4)):
        pod = source.pending(number, with_priorities=with_priorities)
        await c.create(pod)
        manifests[f"{pod['metadata']['namespace']}/replicaset/new{number}"] = pod
        await c.advance(1)
    return manifests, names


@pytest.mark.parametrize("with_priorities", [False, True], ids=["equal", "priorities"])
@pytest.mark.parametrize("seed", range(16))
async def test_a_drain_does_what_was_predicted(seed, with_priorities):
    source = random_source(seed)
    async with cluster(start=False) as c, beside(c.scheduler.watch):
        await c.scheduler.wait_synced()
        manifests, names = await make_random_cluster(c, source, with_priorities=with_priorities)
        drained = tuple(source.random.sample(names, source.random.randint(1, len(names) - 1)))
        before = states(c.pods())
        blind = await predicted(c, Changes(drain=drained))
        copy = await copied(c)
        assert {one.node for one in blind.staying} <= set(drained)
        controllers = Recreating(c, manifests)
        async with beside(controllers.run):
            await c.settle()
            await drain(c, drained, {one.pod for one in blind.staying})
            async with beside(c.scheduler.schedule):
                await c.advance(3 * FLUSHED_SECONDS)
                really, made = states(c.pods()), controllers.made
                await c.advance(FLUSHED_SECONDS)
                is_settled = made == controllers.made
        follow(copy, controllers.bound)
        prediction = await predict(copy, Changes(drain=drained))
    assert is_settled == (not any(IN_VAIN in note for note in prediction.notes))
    if is_settled:
        assert final_states(before, prediction) == really
    assert {one.verb for one in c.requests if one.user == READER} <= {"get", "list"}


async def test_pods_move_stay_pending_and_go_for_good():
    nodes = [make_node(f"n{number}").capacity(cpu="4") for number in (1, 2)]
    async with cluster(nodes, start=False) as c:
        await c.create(
            make_pod("fits").req(cpu="2").node("n1").owner("ReplicaSet", "fits"),
            make_pod("large").req(cpu="3").node("n1").owner("StatefulSet", "large"),
            make_pod("bare").node("n1"),
            make_pod("agent").node("n1").owner("DaemonSet", "agent"),
            make_pod("mirror").node("n1").annotation({"kubernetes.io/config.mirror": "x"}),
        )
        prediction = await predicted(c, Changes(drain=("n1",)))
    moved, waits = prediction.fates
    assert (moved.replaces, moved.before, moved.after) == ("default/fits", "n1", "n2")
    assert moved.pod.startswith("default/fits-")
    assert (waits.pod, waits.before, waits.after) == ("default/large", "n1", "")
    assert waits.message.startswith(
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    )
    assert [one.pod for one in prediction.departures] == ["default/bare"]
    assert [one.pod for one in prediction.staying] == ["default/agent", "default/mirror"]
    first, second = prediction.nodes
    assert (first.is_schedulable, first.before["cpu"], first.after["cpu"]) == (False, 5000, 0)
    assert (second.before["cpu"], second.after["cpu"], second.pods_in) == (0, 2000, 1)
    cpu = prediction.headroom[0]
    assert (cpu.resource, cpu.allocatable_before, cpu.allocatable_after) == ("cpu", 8000, 4000)
    assert (cpu.free_before, cpu.free_after, cpu.largest_after) == (4000, 2000, 2000)
    assert prediction.is_worse


async def test_preempted_pods_are_listed_and_made_again():
    nodes = [make_node(f"n{number}").capacity(cpu="4") for number in (1, 2)]
    high = {"spec": {"priorityClassName": "what-if-high"}}
    async with cluster(nodes, start=False) as c:
        await c.create(*priority_classes())
        await c.create(
            make_pod("vital").req(cpu="4").node("n1").owner("ReplicaSet", "vital").merge(high),
            make_pod("batch").req(cpu="3").node("n2").owner("Job", "batch"),
        )
        prediction = await predicted(c, Changes(drain=("n1",)))
    (eviction,) = prediction.evictions
    assert (eviction.pod, eviction.node) == ("default/batch", "n2")
    assert eviction.preemptor.startswith("default/vital-")
    vital, batch = prediction.fates
    assert vital.after == "n2"
    assert (batch.cause, batch.replaces, batch.after) == (Cause.PREEMPTED, "default/batch", "")
    assert "Insufficient cpu" in batch.message


async def test_added_nodes_take_pending_pods_and_run_what_every_node_runs():
    node = make_node("n1").capacity(cpu="2").label({"kubernetes.io/hostname": "n1"})
    async with cluster([node], start=False) as c:
        await c.create(
            make_pod("agent").req(cpu="1").node("n1").owner("DaemonSet", "agent"),
            make_pod("a").req(cpu="1").node_selector({"kubernetes.io/hostname": "n1"}),
            make_pod("b").req(cpu="1"),
            make_pod("c").req(cpu="2"),
        )
        prediction = await predicted(c, Changes(add_nodes=AddNodes(2, "n1")))
    after = {one.pod: one.after for one in prediction.fates}
    assert after["default/a"] == "n1"
    assert after["default/b"] in ("n1-new-1", "n1-new-2")
    assert after["default/c"] == "", "the agent needs half of every node"
    new = [one for one in prediction.nodes if one.before is None]
    assert sorted(one.after["cpu"] for one in new) == [1000, 2000]
    assert not prediction.is_worse, "what is pending now may stay so"


async def test_a_taint_that_is_removed_lets_pods_in():
    nodes = [make_node("n1").taint("team", "red"), make_node("n2").taint("team", "blue")]
    async with cluster(nodes, start=False) as c:
        await c.create(make_pod("web"))
        change = RemoveTaint("team", "blue", "NoSchedule")
        prediction = await predicted(c, Changes(remove_taints=(change,)))
        with pytest.raises(KschedError, match="zone is not on n2; there are team"):
            await predicted(c, Changes(remove_taints=(RemoveTaint("zone", nodes=("n2",)),)))
    assert [one.after for one in prediction.fates] == ["n2"]


async def test_a_removed_cordon_makes_the_node_take_pods():
    node = make_node("n1").unschedulable().taint(UNSCHEDULABLE)
    async with cluster([node], start=False) as c:
        await c.create(make_pod("web"))
        prediction = await predicted(c, Changes(remove_taints=(RemoveTaint(UNSCHEDULABLE),)))
    assert [one.after for one in prediction.fates] == ["n1"]


async def test_what_cannot_be_decided_is_said():
    async with cluster(2, start=False) as c:
        await c.create(
            make_pod("theirs").node("n1").owner("Job", "theirs").scheduler("volcano"),
            make_pod("gated").gate("quota"),
        )
        prediction = await predicted(c, Changes(drain=("n1",)))
    (theirs,) = prediction.undecided
    assert theirs.message == "schedulerName is volcano: --config has another scheduler's"
    (gated,) = prediction.pending
    assert gated.message == "gated by SchedulingGates: waiting for scheduling gates: [quota]"


async def test_a_pod_that_follows_another_is_tried_again():
    """It comes first in the queue, and fits only when the other is placed."""
    async with cluster(2, start=False) as c:
        await c.create(make_pod("a-follower").pod_affinity("kubernetes.io/hostname", {"app": "x"}))
        await c.create(make_pod("b-leader").label(app="x"))
        await c.patch_node("n1", {"metadata": {"labels": {"kubernetes.io/hostname": "n1"}}})
        await c.patch_node("n2", {"metadata": {"labels": {"kubernetes.io/hostname": "n2"}}})
        prediction = await predicted(c, Changes())
    follower, leader = prediction.fates
    assert follower.after == leader.after != ""


async def test_a_budget_that_makes_the_drain_wait_is_noted():
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    }
    async with cluster(2, start=False) as c:
        await c.create(budget, make_pod("web").label(app="web").node("n1").owner("Job", "web"))
        prediction = await predicted(c, Changes(drain=("n1",)))
    assert prediction.notes == [
        "disruption budget default/web allows 0 now, 1 of its pods are drained: "
        "the drain waits until replacements are ready"
    ]


async def test_an_extender_is_named_without_its_credentials():
    extender = Extender(
        url_prefix="http://user:secret@extender.example/v1?token=t", filter_verb="f"
    )
    async with cluster(1, start=False) as c:
        copy = await copied(c, SchedulerConfiguration(extenders=(extender,)))
        prediction = await predict(copy, Changes(drain=("n1",)))
    assert prediction.notes == ["extender http://extender.example/v1 is not called"]
