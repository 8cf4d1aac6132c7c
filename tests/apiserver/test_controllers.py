"""Deployments, Jobs, budgets, garbage and namespaces, with a kubelet and a naive scheduler.

Covers ``ksched.apiserver.object_cache`` and ``ksched.apiserver.workload_controllers`` too.
"""

from __future__ import annotations

import asyncio

import pytest

from ksched.apiserver.serving import create_nodes, running_cluster
from ksched.testing.virtual_time import VirtualClock

PODS = "/api/v1/namespaces/default/pods"
APPS = "/apis/apps/v1/namespaces/default"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
async def cluster(client, server):
    """A running cluster of one node, whose scheduler binds every pod to it at once."""

    async def bind_everything():
        async with client.watch("/api/v1/pods?fieldSelector=spec.nodeName%3D") as events:
            while True:
                event = await events.next()
                if event["type"] == "ADDED":
                    await client.bind(event["object"]["metadata"]["name"], "node-0001")

    clock = VirtualClock()
    async with running_cluster(server, clock) as transport:
        await create_nodes(transport, clock, 1)
        async with asyncio.TaskGroup() as tasks:
            scheduler = tasks.create_task(bind_everything())
            yield client
            scheduler.cancel()


def workload(client, image="x:1", **spec):
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": client.pod(containers=[{"name": "c", "image": image}])["spec"],
    }
    selector = {"matchLabels": {"app": "web"}}
    return {
        "metadata": {"name": "web"},
        "spec": {"selector": selector, "template": template, **spec},
    }


async def images(client):
    return [pod["spec"]["containers"][0]["image"] for pod in (await client.get(PODS))["items"]]


async def test_a_deployment_gets_its_pods(cluster):
    await cluster.create(f"{APPS}/deployments", workload(cluster, replicas=3))
    await asyncio.sleep(5)
    pods = (await cluster.get(PODS))["items"]
    [replica_set] = (await cluster.get(f"{APPS}/replicasets"))["items"]
    assert len(pods) == 3
    for pod in pods:
        [owner] = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["controller"]) == ("ReplicaSet", True)
        assert owner["uid"] == replica_set["metadata"]["uid"]
        name = replica_set["metadata"]["labels"]["pod-template-hash"]
        assert pod["metadata"]["labels"] == {"app": "web", "pod-template-hash": name}
    status = (await cluster.get(f"{APPS}/deployments/web"))["status"]
    assert (status["replicas"], status["availableReplicas"]) == (3, 3)
    assert status["observedGeneration"] == 1
    assert status["conditions"][0]["status"] == "True"


async def test_deleted_pods_are_replaced_and_surplus_goes(cluster):
    await cluster.create(f"{APPS}/deployments", workload(cluster, replicas=2))
    await asyncio.sleep(5)
    before = set(await cluster.names(PODS))
    await cluster.ok("DELETE", f"{PODS}/{min(before)}")
    await asyncio.sleep(5)
    after = set(await cluster.names(PODS))
    assert len(after) == 2
    assert len(after & before) == 1
    scale = {"spec": {"replicas": 1}}
    await cluster.patch(f"{APPS}/deployments/web", scale, "merge")
    await asyncio.sleep(5)
    assert len(await cluster.names(PODS)) == 1


async def test_a_new_template_rolls_out_without_losing_too_many(cluster):
    await cluster.create(f"{APPS}/deployments", workload(cluster, replicas=4))
    await asyncio.sleep(5)
    await cluster.patch(
        f"{APPS}/deployments/web",
        {"spec": {"template": workload(cluster, "x:2")["spec"]["template"]}},
        "merge",
    )
    fewest = 4
    for _ in range(100):
        await asyncio.sleep(0.1)
        pods = (await cluster.get(PODS))["items"]
        ready = [
            p
            for p in pods
            if p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"]
        ]
        fewest = min(fewest, len(ready))
        assert len([p for p in pods if "deletionTimestamp" not in p["metadata"]]) <= 5
    assert fewest >= 3
    assert await images(cluster) == ["x:2"] * 4


async def test_recreate_ends_the_old_before_it_begins_the_new(cluster):
    strategy = {"type": "Recreate"}
    await cluster.create(f"{APPS}/deployments", workload(cluster, replicas=2, strategy=strategy))
    await asyncio.sleep(5)
    template = workload(cluster, "x:2")["spec"]["template"]
    await cluster.patch(f"{APPS}/deployments/web", {"spec": {"template": template}}, "merge")
    await asyncio.sleep(10)
    assert await images(cluster) == ["x:2"] * 2


async def test_dependents_of_a_deleted_deployment_go(cluster):
    await cluster.create(f"{APPS}/deployments", workload(cluster, replicas=2))
    await asyncio.sleep(5)
    await cluster.ok("DELETE", f"{APPS}/deployments/web")
    await asyncio.sleep(5)
    assert await cluster.names(f"{APPS}/replicasets") == []
    assert await cluster.names(PODS) == []


async def test_a_job_runs_to_completion(cluster):
    job = workload(cluster, completions=3, parallelism=2)
    del job["spec"]["selector"]
    template = job["spec"]["template"]
    template["spec"]["restartPolicy"] = "Never"
    template["metadata"]["annotations"] = {"ksched.dev/run-seconds": "10"}
    await cluster.create("/apis/batch/v1/namespaces/default/jobs", job)
    await asyncio.sleep(5)
    assert len(await cluster.names(PODS)) == 2
    await asyncio.sleep(30)
    status = (await cluster.get("/apis/batch/v1/namespaces/default/jobs/web"))["status"]
    assert (status["succeeded"], status["active"]) == (3, 0)
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [("Complete", "True")]
    assert len(await cluster.names(PODS)) == 3


@pytest.mark.parametrize(
    ("spec", "allowed", "desired"),
    [
        pytest.param({"minAvailable": 2}, 2, 2, id="at least"),
        pytest.param({"minAvailable": "75%"}, 1, 3, id="at least a share"),
        pytest.param({"maxUnavailable": 1}, 1, 3, id="at most"),
        pytest.param({"maxUnavailable": "30%"}, 2, 2, id="at most a share, rounded up"),
        pytest.param({"minAvailable": 5}, 0, 5, id="more than there are"),
    ],
)
async def test_budgets_are_counted(cluster, spec, allowed, desired):
    await cluster.create(f"{APPS}/deployments", workload(cluster, replicas=4))
    selector = {"matchLabels": {"app": "web"}}
    budget = {"metadata": {"name": "b"}, "spec": {"selector": selector, **spec}}
    await cluster.create(BUDGETS, budget)
    await asyncio.sleep(5)
    status = (await cluster.get(f"{BUDGETS}/b"))["status"]
    assert (status["currentHealthy"], status["expectedPods"]) == (4, 4)
    assert (status["disruptionsAllowed"], status["desiredHealthy"]) == (allowed, desired)
    assert status["observedGeneration"] == 1


async def test_a_drained_budget_recovers_when_the_pod_is_replaced(cluster):
    await cluster.create(f"{APPS}/deployments", workload(cluster, replicas=2))
    selector = {"matchLabels": {"app": "web"}}
    budget = {"metadata": {"name": "b"}, "spec": {"selector": selector, "minAvailable": 1}}
    await cluster.create(BUDGETS, budget)
    await asyncio.sleep(5)
    first, second = await cluster.names(PODS)
    evicted = []
    for name in (first, second):
        body = {"metadata": {"name": name}}
        evicted.append((await cluster.send("POST", f"{PODS}/{name}/eviction", body))[0])
    assert evicted == [201, 429]
    await asyncio.sleep(5)
    body = {"metadata": {"name": second}}
    assert (await cluster.send("POST", f"{PODS}/{second}/eviction", body))[0] == 201


async def test_a_deleted_namespace_is_emptied(cluster):
    await cluster.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    await cluster.create("/api/v1/namespaces/team/configmaps", {"metadata": {"name": "cm"}})
    pod = cluster.pod("web", nodeName="node-0001")
    await cluster.create("/api/v1/namespaces/team/pods", pod)
    await asyncio.sleep(5)
    await cluster.ok("DELETE", "/api/v1/namespaces/team")
    await asyncio.sleep(5)
    assert "team" not in await cluster.names("/api/v1/namespaces")
    assert await cluster.names("/api/v1/pods") == []


async def test_pods_of_a_lost_node_are_given_up(cluster):
    await cluster.create(f"{APPS}/deployments", workload(cluster, replicas=1))
    await asyncio.sleep(5)
    [before] = await cluster.names(PODS)
    await cluster.ok("DELETE", "/api/v1/nodes/node-0001")
    await asyncio.sleep(45)
    [after] = await cluster.names(PODS)
    assert after != before


async def test_a_refused_pod_is_tried_again(cluster):
    deployment = workload(cluster, replicas=1)
    deployment["spec"]["template"]["spec"]["priorityClassName"] = "later"
    await cluster.create(f"{APPS}/deployments", deployment)
    await asyncio.sleep(5)
    assert await cluster.names(PODS) == []
    later = {"metadata": {"name": "later"}, "value": 1}
    await cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", later)
    await asyncio.sleep(15)
    assert len(await cluster.names(PODS)) == 1
