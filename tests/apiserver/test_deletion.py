"""DELETE: grace periods, finalizers, preconditions, collections, namespaces."""

from __future__ import annotations

import asyncio

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


async def bound_pod(client, name="web", **spec):
    pod = await client.create_pod(name, **spec)
    await client.bind(name, "n1")
    return pod


async def test_an_unbound_pod_goes_at_once(client):
    await client.create_pod("web")
    status, answer = await client.send("DELETE", f"{PODS}/web")
    assert (status, answer["kind"]) == (200, "Pod")
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await client.send("GET", f"{PODS}/web"))[0] == 404


async def test_a_bound_pod_waits_for_its_kubelet(client):
    await bound_pod(client)
    marked = await client.ok("DELETE", f"{PODS}/web")
    assert marked["metadata"]["deletionTimestamp"] == "2023-11-14T22:13:50Z"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked["metadata"]["generation"] == 2
    assert await client.names(PODS) == ["web"]
    await client.ok("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 0})
    assert await client.names(PODS) == []


async def test_the_grace_period_can_only_become_shorter(client):
    await bound_pod(client)
    first = await client.ok("DELETE", f"{PODS}/web?gracePeriodSeconds=20")
    longer = await client.ok("DELETE", f"{PODS}/web?gracePeriodSeconds=60")
    again = await client.ok("DELETE", f"{PODS}/web")
    assert longer == again == first
    await asyncio.sleep(5)
    shorter = await client.ok("DELETE", f"{PODS}/web?gracePeriodSeconds=10")
    assert shorter["metadata"]["deletionTimestamp"] == "2023-11-14T22:13:30Z"
    await asyncio.sleep(10)
    past = await client.ok("DELETE", f"{PODS}/web?gracePeriodSeconds=3")
    assert past["metadata"]["deletionGracePeriodSeconds"] == 1
    assert past["metadata"]["deletionTimestamp"] == "2023-11-14T22:13:35Z"


async def test_a_finished_pod_needs_no_grace(client):
    await bound_pod(client)
    await client.patch(f"{PODS}/web/status", {"status": {"phase": "Succeeded"}}, "merge")
    await client.ok("DELETE", f"{PODS}/web")
    assert await client.names(PODS) == []


async def test_a_pods_own_grace_period_counts(client):
    await bound_pod(client, terminationGracePeriodSeconds=7)
    marked = await client.ok("DELETE", f"{PODS}/web")
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 7


async def test_finalizers_hold_an_object(client):
    body = {"metadata": {"name": "cm", "finalizers": ["example.com/a"]}}
    await client.create(CONFIG_MAPS, body)
    status, held = await client.send("DELETE", f"{CONFIG_MAPS}/cm")
    assert (status, held["kind"]) == (200, "ConfigMap")
    assert held["metadata"]["deletionTimestamp"]
    async with client.watch(
        f"{CONFIG_MAPS}?resourceVersion={held['metadata']['resourceVersion']}"
    ) as events:
        await client.patch(f"{CONFIG_MAPS}/cm", {"metadata": {"finalizers": None}}, "merge")
        assert await events.seen() == ("DELETED", "cm")
    assert await client.names(CONFIG_MAPS) == []


async def test_no_finalizer_may_be_added_to_what_is_going(client):
    await client.create(CONFIG_MAPS, {"metadata": {"name": "cm", "finalizers": ["example.com/a"]}})
    await client.ok("DELETE", f"{CONFIG_MAPS}/cm")
    patch = {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}
    status, answer = await client.patch(f"{CONFIG_MAPS}/cm", patch, "merge")
    assert status == 422
    assert "no new finalizers can be added" in answer["message"]


async def test_a_finalizer_outlives_the_grace_period(client):
    await bound_pod(client, metadata={"finalizers": ["example.com/a"]})
    await client.ok("DELETE", f"{PODS}/web")
    await client.ok("DELETE", f"{PODS}/web?gracePeriodSeconds=0")
    assert await client.names(PODS) == ["web"]
    await client.patch(f"{PODS}/web", {"metadata": {"finalizers": []}}, "merge")
    assert await client.names(PODS) == []


async def test_losing_finalizers_does_not_cut_the_grace_period(client):
    await bound_pod(client, metadata={"finalizers": ["example.com/a"]})
    await client.ok("DELETE", f"{PODS}/web")
    await client.patch(f"{PODS}/web", {"metadata": {"finalizers": []}}, "merge")
    assert await client.names(PODS) == ["web"]


async def test_preconditions(client):
    pod = await client.create_pod("web")
    uid, version = pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        status, answer = await client.send("DELETE", f"{PODS}/web", {"preconditions": wrong})
        assert (status, answer["reason"]) == (409, "Conflict")
        assert 'Operation cannot be fulfilled on Pod "web": the ' in answer["message"]
    right = {"preconditions": {"uid": uid, "resourceVersion": version}}
    await client.ok("DELETE", f"{PODS}/web", right)


async def test_a_finished_deletion_of_other_kinds_answers_with_a_status(client):
    created = await client.create(CONFIG_MAPS, {"metadata": {"name": "cm"}})
    answer = await client.ok("DELETE", f"{CONFIG_MAPS}/cm")
    assert answer["status"] == "Success"
    uid = created["metadata"]["uid"]
    assert answer["details"] == {"name": "cm", "kind": "configmaps", "uid": uid}


async def test_collections_are_deleted_by_selector(client):
    for name, app in (("a", "web"), ("b", "db"), ("c", "web")):
        await client.create_pod(name, metadata={"labels": {"app": app}})
    answer = await client.ok("DELETE", f"{PODS}?labelSelector=app%3Dweb")
    assert [item["metadata"]["name"] for item in answer["items"]] == ["a", "c"]
    assert await client.names(PODS) == ["b"]


async def test_orphaned_dependents_lose_their_owner(client):
    owner = await client.create(CONFIG_MAPS, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    reference["uid"] = owner["metadata"]["uid"]
    await client.create_pod("web", metadata={"ownerReferences": [reference]})
    await client.ok("DELETE", f"{CONFIG_MAPS}/owner?propagationPolicy=Orphan")
    assert "ownerReferences" not in (await client.get(f"{PODS}/web"))["metadata"]


async def test_unknown_propagation_is_invalid(client):
    await client.create_pod("web")
    status, _ = await client.send("DELETE", f"{PODS}/web?propagationPolicy=Sideways")
    assert status == 422


async def test_a_dry_run_deletes_nothing(client):
    await client.create_pod("web")
    await client.ok("DELETE", f"{PODS}/web?dryRun=All")
    assert await client.names(PODS) == ["web"]


async def test_a_namespace_closes_before_it_goes(client):
    await client.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    closing = await client.ok("DELETE", "/api/v1/namespaces/team")
    assert closing["status"]["phase"] == "Terminating"
    status, answer = await client.send("POST", "/api/v1/namespaces/team/pods", client.pod())
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert "because it is being terminated" in answer["message"]
    empty = {"metadata": {"name": "team"}, "spec": {"finalizers": []}}
    await client.ok("PUT", "/api/v1/namespaces/team/finalize", empty)
    assert (await client.send("GET", "/api/v1/namespaces/team"))[0] == 404


async def test_the_default_namespace_stays(client):
    assert (await client.send("DELETE", "/api/v1/namespaces/default"))[0] == 403
