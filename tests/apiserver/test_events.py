"""Events: two API groups, one storage.

Covers ``ksched.apiserver.event_versions`` too.
"""

from __future__ import annotations

OLD = "/api/v1/namespaces/default/events"
NEW = "/apis/events.k8s.io/v1/namespaces/default/events"
SCHEDULED = {
    "metadata": {"name": "web.1"},
    "eventTime": "2023-11-14T22:13:20.000000Z",
    "reportingController": "default-scheduler",
    "reportingInstance": "default-scheduler-host",
    "action": "Binding",
    "reason": "Scheduled",
    "regarding": {"kind": "Pod", "namespace": "default", "name": "web", "uid": "u"},
    "note": "Successfully assigned default/web to n1",
    "type": "Normal",
}


async def test_an_event_of_the_new_group_is_seen_by_old_clients(client):
    created = await client.create(NEW, SCHEDULED)
    assert created["apiVersion"] == "events.k8s.io/v1"
    assert {key: created[key] for key in SCHEDULED if key != "metadata"} == {
        key: value for key, value in SCHEDULED.items() if key != "metadata"
    }
    old = await client.get(f"{OLD}/web.1")
    assert old["apiVersion"] == "v1"
    assert old["involvedObject"] == SCHEDULED["regarding"]
    assert old["message"] == SCHEDULED["note"]
    assert old["reportingComponent"] == "default-scheduler"
    assert "regarding" not in old


async def test_an_old_event_is_seen_by_new_clients(client):
    event = {
        "metadata": {"name": "web.1"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web"},
        "message": "hello",
        "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "count": 2,
    }
    await client.create(OLD, event)
    [new] = (await client.get(NEW))["items"]
    assert new["note"] == "hello"
    assert new["deprecatedSource"] == event["source"]
    assert new["deprecatedCount"] == 2
    assert "kind" not in new


async def test_a_series_is_patched_in_the_new_shape(client):
    await client.create(NEW, SCHEDULED)
    series = {"series": {"count": 2, "lastObservedTime": "2023-11-14T22:14:20.000000Z"}}
    status, patched = await client.patch(f"{NEW}/web.1", series, "strategic")
    assert (status, patched["series"]["count"], patched["note"]) == (200, 2, SCHEDULED["note"])
    assert (await client.get(f"{OLD}/web.1"))["series"]["count"] == 2


async def test_describe_finds_an_objects_events_by_field(client):
    await client.create(NEW, SCHEDULED)
    selector = "involvedObject.name%3Dweb,involvedObject.uid%3Du,involvedObject.kind%3DPod"
    assert await client.names(f"{OLD}?fieldSelector={selector}") == ["web.1"]
    assert await client.names(f"{OLD}?fieldSelector=involvedObject.name%3Dother") == []
    assert await client.names(f"{NEW}?fieldSelector=regarding.name%3Dweb") == ["web.1"]
    assert await client.names(f"{OLD}?fieldSelector=source%3Ddefault-scheduler") == ["web.1"]


async def test_a_watch_speaks_the_version_it_was_asked_in(client):
    async with client.watch(NEW) as new, client.watch(OLD) as old:
        await client.create(NEW, SCHEDULED)
        shown, stored = (await new.next())["object"], (await old.next())["object"]
    assert (shown["apiVersion"], shown["note"]) == ("events.k8s.io/v1", SCHEDULED["note"])
    assert (stored["apiVersion"], stored["message"]) == ("v1", SCHEDULED["note"])


async def test_deleting_through_one_group_deletes_in_both(client):
    await client.create(NEW, SCHEDULED)
    await client.ok("DELETE", f"{NEW}/web.1")
    assert await client.names(OLD) == []
