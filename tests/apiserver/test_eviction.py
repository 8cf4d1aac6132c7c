"""pods/eviction and disruption budgets (``EvictionREST``)."""

from __future__ import annotations

import pytest

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


async def running_pod(client, name="web", status=READY):
    await client.create_pod(name, metadata={"labels": {"app": "web"}})
    await client.bind(name, "n1")
    await client.patch(f"{PODS}/{name}/status", {"status": status}, "merge")


async def budget(client, name="b", **status):
    spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1}
    await client.create(BUDGETS, {"metadata": {"name": name}, "spec": spec})
    status = {"observedGeneration": 1, "desiredHealthy": 1, **status}
    await client.patch(f"{BUDGETS}/{name}/status", {"status": status}, "merge")


async def evict(client, name="web", **body):
    eviction = {"metadata": {"name": name}, **body}
    return await client.send("POST", f"{PODS}/{name}/eviction", eviction)


async def test_without_a_budget_the_pod_is_marked_and_deleted(client):
    await running_pod(client)
    status, answer = await evict(client)
    assert (status, answer["status"]) == (201, "Success")
    pod = await client.get(f"{PODS}/web")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    target = next(c for c in pod["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_a_spent_budget_refuses(client):
    await running_pod(client)
    await budget(client, disruptionsAllowed=0, currentHealthy=1)
    response = await client.respond("POST", f"{PODS}/web/eviction", {"metadata": {"name": "web"}})
    assert response.status == 429
    status, answer = await evict(client)
    assert (status, answer["reason"]) == (429, "TooManyRequests")
    assert answer["message"] == (
        "Cannot evict pod as it would violate the pod's disruption budget."
    )
    [cause] = answer["details"]["causes"]
    assert cause == {
        "reason": "DisruptionBudget",
        "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
    }
    assert "deletionTimestamp" not in (await client.get(f"{PODS}/web"))["metadata"]


async def test_a_budget_is_spent_one_by_one(client):
    await running_pod(client, "a")
    await running_pod(client, "b")
    await budget(client, disruptionsAllowed=1, currentHealthy=2)
    assert [(await evict(client, name))[0] for name in ("a", "b")] == [201, 429]
    status = (await client.get(f"{BUDGETS}/b"))["status"]
    assert status["disruptionsAllowed"] == 0
    assert set(status["disruptedPods"]) == {"a"}


async def test_a_budget_not_yet_counted_asks_for_patience(client):
    await running_pod(client)
    await budget(client, observedGeneration=0, disruptionsAllowed=1)
    response = await client.respond("POST", f"{PODS}/web/eviction", {"metadata": {"name": "web"}})
    assert (response.status, response.headers["Retry-After"]) == (429, "10")


async def test_two_budgets_are_too_many(client):
    await running_pod(client)
    await budget(client, "a", disruptionsAllowed=1)
    await budget(client, "b", disruptionsAllowed=1)
    status, answer = await evict(client)
    assert status == 500
    assert "more than one PodDisruptionBudget" in answer["message"]


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"phase": "Succeeded"}, id="finished"),
        pytest.param({"phase": "Failed"}, id="failed"),
        pytest.param({"phase": "Pending"}, id="never ran"),
    ],
)
async def test_pods_that_do_not_run_are_not_protected(client, status):
    await running_pod(client, status=status)
    await budget(client, disruptionsAllowed=0)
    assert (await evict(client))[0] == 201


async def test_an_unready_pod_goes_free_while_enough_others_are_healthy(client):
    await running_pod(client, status={"phase": "Running", "conditions": []})
    await budget(client, disruptionsAllowed=0, currentHealthy=1)
    assert (await evict(client))[0] == 201
    assert (await client.get(f"{BUDGETS}/b"))["status"]["disruptionsAllowed"] == 0


async def test_delete_options_of_the_eviction_are_used(client):
    await running_pod(client)
    assert (await evict(client, deleteOptions={"preconditions": {"uid": "other"}}))[0] == 409
    assert len((await client.get(f"{PODS}/web"))["status"]["conditions"]) == 1
    await evict(client, deleteOptions={"gracePeriodSeconds": 0})
    assert await client.names(PODS) == []


async def test_a_missing_pod_is_not_found(client):
    assert (await evict(client))[0] == 404
