"""Explanations against the scheduler's own decisions on the embedded API server.

Covers ``ksched.explain.cluster_copy`` and ``ksched.explain.explanation`` too.
"""

from __future__ import annotations

from random import Random

import pytest

from ksched.apiserver.in_process import InProcessTransport
from ksched.client.rest import ApiClient
from ksched.configuration.extenders import Extender
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import InvariantBroken
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.explaining import explain
from ksched.explain.read_only import ReadOnlyTransport
from ksched.framework import SUCCESS, error
from ksched.framework.diagnosis import Diagnosis
from ksched.testing import cluster, make_node, make_pod
from lab.parity.manifests import RandomManifests

PRIORITY_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 10,
}
OF_CLASS = {"spec": {"priorityClassName": "high"}}


async def explained(c, pod, configuration=None):
    """The explanation of a pod, read through a connection that cannot write."""
    transport = ReadOnlyTransport(InProcessTransport(c.server, "reader"))
    client = ApiClient(transport, c.clock)
    copy = ClusterCopy(client, configuration or SchedulerConfiguration(), c.clock)
    namespace, _, name = pod.rpartition("/")
    found = await copy.read_pod(namespace or "default", name)
    await copy.read()
    return await explain(copy, found)


async def test_an_extender_is_named_without_its_credentials():
    extender = Extender(
        url_prefix="http://user:secret@extender.example/v1?token=t", filter_verb="f"
    )
    async with cluster(1) as c:
        await c.create(make_pod("web"))
        await c.settle()
        explanation = await explained(c, "web", SchedulerConfiguration(extenders=(extender,)))
    assert explanation.notes == ["extender http://extender.example/v1 is not called"]


class FailsOnLaterNodes:
    """A filter with an error where the scheduler does not call it: another filter rejects first."""

    name = "FailsOnLaterNodes"

    def __init__(self, args, handle):
        pass

    def filter(self, state, pod, node_info):
        return SUCCESS if node_info.name == "full" else error("the driver has no such key")


async def test_an_error_about_a_node_that_is_rejected_anyway_is_one_more_reason():
    config = {"plugins": {"filter": {"enabled": [{"name": "FailsOnLaterNodes"}]}}}
    profile = {"profiles": [{"schedulerName": "default-scheduler", **config}]}
    full = make_node("full").label(disk="ssd").capacity(cpu="1")
    nodes = [full, make_node("other").label(disk="hdd")]
    async with cluster(nodes, config=profile, plugins=[FailsOnLaterNodes]) as c:
        await c.create(make_pod("web").req(cpu="2").node_selector(disk="ssd"))
        await c.settle()
        client = ApiClient(InProcessTransport(c.server, "reader"), c.clock)
        copy = ClusterCopy(
            client,
            c.scheduler.configuration,
            c.clock,
            registry={"FailsOnLaterNodes": FailsOnLaterNodes},
        )
        pod = await copy.read_pod("default", "web")
        await copy.read()
        explanation = await explain(copy, pod)
        (condition,) = c.pod("web")["status"]["conditions"]
    assert explanation.message == condition["message"]
    (other,) = [one for one in explanation.nodes if one.node == "other"]
    assert "the driver has no such key" in other.rejections[-1].reasons[0]


async def test_writes_are_refused_before_they_are_sent():
    async with cluster() as c:
        client = ApiClient(ReadOnlyTransport(InProcessTransport(c.server, "reader")), c.clock)
        with pytest.raises(InvariantBroken, match=r"POST .*binding: refused, .*read-only"):
            await client.bind("default", "web", "uid", "node")
        assert [one for one in c.requests if one.user == "reader"] == []


@pytest.mark.parametrize("seed", range(25))
async def test_random_pods_are_explained_as_they_were_decided(seed):
    random = Random(seed)
    source = RandomManifests(random)
    async with cluster() as c:
        names = [f"n{number}" for number in range(random.randint(1, 6))]
        await c.create(*source.cluster(names))
        for number in range(random.randint(0, 8)):
            await c.create(source.running_pod(f"r{number}", names))
        await c.settle()
        for number in range(5):
            others = placed(c)
            (created,) = await c.create(source.pod(f"p{number}"))
            await c.settle()
            meta = created["metadata"]
            key = f"{meta['namespace']}/{meta['name']}"
            explanation = await explained(c, key)
            node = c.bound(key)
            assert explanation.node == (node or "")
            if node is not None:
                best = [one for one in explanation.feasible if one.total == top(explanation)]
                # Unless a pod that had waited for this one followed, the cluster is still the same.
                if placed(c) == others | {key}:
                    assert node in [one.node for one in best]
                continue
            assert explanation.message == c.message(key)
            assert explanation.message.startswith(counted(explanation))


def placed(c):
    return {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in c.pods()
        if pod["spec"].get("nodeName")
    }


def top(explanation):
    return max(one.total for one in explanation.feasible)


def counted(explanation):
    """The message's first sentence, counted from the nodes' first rejections."""
    reasons: dict[str, int] = {}
    for one in explanation.nodes:
        for reason in one.rejections[0].reasons:
            reasons[reason] = reasons.get(reason, 0) + 1
    diagnosis = Diagnosis(num_all_nodes=explanation.num_all_nodes, reasons=reasons)
    same = {tuple(one.rejections[0].reasons) for one in explanation.nodes}
    if diagnosis.message not in explanation.message and len(same) == 1:
        # PreFilter rejected all nodes at once; kube-scheduler does not count then.
        return f"0/{explanation.num_all_nodes} nodes are available: {', '.join(same.pop())}."
    return diagnosis.message


async def test_every_plugin_that_rejects_a_node_is_named():
    tainted = make_node("n1").capacity(cpu="1").taint("team", "red")
    async with cluster([tainted, make_node("n2").capacity(cpu="1")]) as c:
        await c.create(make_pod("big").req(cpu="2"))
        await c.settle()
        explanation = await explained(c, "big")
    by_node = {one.node: [each.plugin for each in one.rejections] for one in explanation.nodes}
    assert by_node == {"n1": ["TaintToleration", "NodeResourcesFit"], "n2": ["NodeResourcesFit"]}
    assert explanation.preemption is None


async def test_a_placed_pod_is_explained_on_the_cluster_without_it():
    async with cluster([make_node("n1").capacity(cpu="2")]) as c:
        await c.create(make_pod("web").req(cpu="2"))
        await c.settle()
        explanation = await explained(c, "web")
    assert (explanation.node, [one.fits for one in explanation.nodes]) == ("n1", [True])


async def test_preemption_names_node_and_victims_and_evicts_nobody():
    async with cluster([make_node("n1").capacity(cpu="2")], start=False) as c:
        await c.create(PRIORITY_CLASS, make_pod("low").req(cpu="2").node("n1"))
        await c.create(make_pod("high").req(cpu="1").merge(OF_CLASS))
        explanation = await explained(c, "high")
        assert c.exists("low")
    assert explanation.preemption is not None
    assert explanation.preemption.node == "n1"
    assert explanation.preemption.victims == ["default/low"]


async def test_a_gated_pod_says_by_what_and_whether_it_would_fit():
    async with cluster(2) as c:
        await c.create(make_pod("gated").gate("quota"))
        explanation = await explained(c, "gated")
    assert explanation.gates == ["SchedulingGates: waiting for scheduling gates: [quota]"]
    assert len(explanation.feasible) == 2


async def test_a_nomination_that_fits_is_noted_and_all_nodes_are_explained():
    async with cluster(2, start=False) as c:
        await c.create(make_pod("next"))
        name = c.nodes()[0]["metadata"]["name"]
        await c.patch("next", {"status": {"nominatedNodeName": name}}, subresource="status")
        explanation = await explained(c, "next")
    assert explanation.nominated_node == name
    assert explanation.notes == ["it fits on its nominated node: no other would be tried"]
    assert len(explanation.feasible) == 2


async def test_a_pod_of_another_scheduler_is_explained_with_the_only_profile():
    async with cluster(1) as c:
        await c.create(make_pod("theirs").scheduler("volcano"))
        explanation = await explained(c, "theirs")
    assert "schedulerName is volcano" in explanation.notes[0]
    assert explanation.profile == "default-scheduler"
