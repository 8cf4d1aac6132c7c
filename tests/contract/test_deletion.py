"""DELETE: grace periods, preconditions, finalizers, and eviction under a budget."""

from __future__ import annotations

from typing import Any

import pytest

from ksched.api.resources import POD_DISRUPTION_BUDGETS, PODS
from ksched.errors import ApiError, Conflict, NotFound, TooManyRequests

pytestmark = pytest.mark.real_time


async def running(api, name: str, **spec) -> dict[str, Any]:
    """A pod on a node that its kubelet calls ready."""
    pod = await api.create_pod(name, **spec)
    await api.bind(pod, "n1")
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return await api.patch(PODS, name, {"status": status}, subresource="status")


async def is_there(api, name: str) -> bool:
    return name in await api.names(PODS)


# -- grace periods -----------------------------------------------------------------------------


async def test_an_unbound_pod_goes_at_once(api):
    pod = await api.create_pod("web")

    await api.client.delete_pod(api.namespace, "web", pod["metadata"]["uid"])

    assert not await is_there(api, "web")


async def test_a_bound_pod_is_marked_and_waits_for_its_kubelet(api):
    before = await running(api, "web", terminationGracePeriodSeconds=20)

    await api.client.delete_pod(api.namespace, "web")

    metadata = (await api.get(PODS, "web"))["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 20
    assert metadata["deletionTimestamp"] > before["metadata"]["creationTimestamp"]
    assert metadata["generation"] == before["metadata"]["generation"] + 1


async def test_a_grace_period_can_only_be_shortened(api):
    await running(api, "web")
    await api.delete(PODS, "web", {"gracePeriodSeconds": 10})

    await api.delete(PODS, "web", {"gracePeriodSeconds": 20})
    longer = (await api.get(PODS, "web"))["metadata"]["deletionGracePeriodSeconds"]
    await api.delete(PODS, "web", {"gracePeriodSeconds": 5})
    shorter = (await api.get(PODS, "web"))["metadata"]["deletionGracePeriodSeconds"]

    assert (longer, shorter) == (10, 5)


@pytest.mark.parametrize("marked", [False, True], ids=["at once", "after the mark"])
async def test_without_grace_a_bound_pod_goes(api, marked):
    await running(api, "web")
    if marked:
        await api.delete(PODS, "web")

    await api.delete(PODS, "web", {"gracePeriodSeconds": 0})

    assert not await is_there(api, "web")


async def test_a_finished_pod_needs_no_grace(api):
    await running(api, "web")
    await api.patch(PODS, "web", {"status": {"phase": "Succeeded"}}, subresource="status")

    await api.delete(PODS, "web")

    assert not await is_there(api, "web")


async def test_a_pod_that_is_gone_is_not_found(api):
    with pytest.raises(NotFound, match='pods "ghost" not found'):
        await api.client.delete_pod(api.namespace, "ghost")


async def test_a_uid_protects_the_successor(api):
    await api.create_pod("web")

    with pytest.raises(Conflict, match="The object might have been deleted and then recreated"):
        await api.client.delete_pod(api.namespace, "web", "other")

    assert await is_there(api, "web")


async def test_a_version_protects_what_was_changed(api):
    pod = await api.create_pod("web")
    await api.patch(PODS, "web", {"metadata": {"labels": {"a": "1"}}})
    version = {"resourceVersion": pod["metadata"]["resourceVersion"]}

    with pytest.raises(Conflict, match="The object might have been modified"):
        await api.delete(PODS, "web", {"preconditions": version})


async def test_a_finalizer_keeps_a_pod_until_it_is_taken_off(api):
    await api.create_pod("web", metadata={"finalizers": ["example.com/wait"]})
    await api.delete(PODS, "web", {"gracePeriodSeconds": 0})
    kept = (await api.get(PODS, "web"))["metadata"]

    await api.patch(PODS, "web", {"metadata": {"finalizers": None}})

    assert kept["deletionTimestamp"]
    assert not await is_there(api, "web")


async def test_a_collection_is_deleted_by_selector(api):
    for name, app in (("a", "web"), ("b", "db"), ("c", "web")):
        await api.create_pod(name, metadata={"labels": {"app": app}})

    await api.send("DELETE", f"{PODS.path(api.namespace)}?labelSelector=app=web")

    assert await api.names(PODS) == ["b"]


async def test_nothing_is_deleted_on_trial(api):
    await api.create_pod("web")

    await api.delete(PODS, "web", {"dryRun": ["All"]})

    assert await is_there(api, "web")


# -- eviction ----------------------------------------------------------------------------------


async def budget(api, name: str, **status) -> None:
    """A budget of the pods of app=web, with what its controller would have written."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    created = await api.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": name}, "spec": spec})
    created["status"] = {
        "observedGeneration": 1,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
        "disruptionsAllowed": 0,
        **status,
    }
    await api.update(POD_DISRUPTION_BUDGETS, created, "status")


async def evict(api, name: str, **options) -> dict[str, Any]:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if options:
        body["deleteOptions"] = options
    return await api.send("POST", PODS.path(api.namespace, name, "eviction"), body)


WEB = {"labels": {"app": "web"}}


async def test_a_pod_without_a_budget_is_evicted(api):
    await running(api, "web", metadata=WEB)

    answer = await evict(api, "web")

    assert (answer["status"], answer["code"]) == ("Success", 201)
    pod = await api.get(PODS, "web")
    assert pod["metadata"]["deletionTimestamp"]
    [mark] = [c for c in pod["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert (mark["status"], mark["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_a_budget_forbids_until_it_allows(api):
    await running(api, "web", metadata=WEB)
    await budget(api, "keep")

    with pytest.raises(TooManyRequests, match="Cannot evict pod as it would violate the pod's"):
        await api.client.request(
            "POST",
            PODS.path(api.namespace, "web", "eviction"),
            b'{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web"}}',
        )
    assert "deletionTimestamp" not in (await api.get(PODS, "web"))["metadata"]

    allowed = {"disruptionsAllowed": 1, "currentHealthy": 2}
    status = {"metadata": {"name": "keep"}, "status": allowed}
    await api.patch(POD_DISRUPTION_BUDGETS, "keep", status, subresource="status")
    await evict(api, "web")

    spent = (await api.get(POD_DISRUPTION_BUDGETS, "keep"))["status"]
    assert spent["disruptionsAllowed"] == 0
    assert list(spent["disruptedPods"]) == ["web"]
    assert (await api.get(PODS, "web"))["metadata"]["deletionTimestamp"]


async def test_a_refusal_names_the_budget_and_why(api):
    await running(api, "web", metadata=WEB)
    await budget(api, "keep")
    body = b'{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"web"}}'

    path = PODS.path(api.namespace, "web", "eviction")
    answer = await api.transport.request("POST", path, body)

    assert answer.status == 429
    assert b'"reason":"DisruptionBudget"' in answer.body.replace(b": ", b":")
    assert b"The disruption budget keep needs 1 healthy pods and has 1 currently" in answer.body


async def test_a_budget_nobody_has_looked_at_asks_for_patience(api):
    await running(api, "web", metadata=WEB)
    await budget(api, "keep", observedGeneration=0, disruptionsAllowed=1)

    with pytest.raises(TooManyRequests) as caught:
        await evict(api, "web")

    assert caught.value.retry_after == 10


async def test_two_budgets_are_one_too_many(api):
    await running(api, "web", metadata=WEB)
    await budget(api, "one", disruptionsAllowed=1)
    await budget(api, "two", disruptionsAllowed=1)

    with pytest.raises(ApiError, match="This pod has more than one PodDisruptionBudget") as caught:
        await evict(api, "web")

    assert caught.value.code == 500


async def test_a_pod_that_does_not_run_yet_is_nobodys_budget(api):
    await api.create_pod("web", metadata=WEB)
    await budget(api, "keep")

    await evict(api, "web")

    assert not await is_there(api, "web")


async def test_an_eviction_may_be_a_trial(api):
    await running(api, "web", metadata=WEB)
    await budget(api, "keep", disruptionsAllowed=1, currentHealthy=2)

    await evict(api, "web", dryRun=["All"])

    status = (await api.get(POD_DISRUPTION_BUDGETS, "keep"))["status"]
    assert status["disruptionsAllowed"] == 1
    assert "deletionTimestamp" not in (await api.get(PODS, "web"))["metadata"]


async def test_an_eviction_of_another_incarnation_is_a_conflict(api):
    await running(api, "web", metadata=WEB)

    with pytest.raises(Conflict):
        await evict(api, "web", preconditions={"uid": "other"})

    assert "deletionTimestamp" not in (await api.get(PODS, "web"))["metadata"]
