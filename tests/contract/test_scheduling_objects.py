"""What a scheduler needs beside pods: priorities, leases, events."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from ksched.api.decoding import decode_pod
from ksched.api.resources import EVENTS, LEASES, PODS, ApiResource
from ksched.client.recorder import EventRecorder, pod_reference
from ksched.configuration.model import LeaderElection
from ksched.election.locks import make_lock
from ksched.election.record import LeaderElectionRecord
from ksched.errors import ApiError, Conflict, NotFound

pytestmark = pytest.mark.real_time

PRIORITY_CLASSES = ApiResource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
CORE_EVENTS = ApiResource("", "v1", "events", "Event")


# -- priority admission ------------------------------------------------------------------------


async def test_a_class_gives_its_value_and_policy(api):
    name = api.name("gold")
    gold = {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": "Never"}
    await api.create(PRIORITY_CLASSES, gold)

    spec = (await api.create_pod("web", priorityClassName=name))["spec"]

    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


async def test_the_default_class_is_for_everybody_else(api):
    name = api.name("usual")
    usual = {"metadata": {"name": name}, "value": 7, "globalDefault": True}
    await api.create(PRIORITY_CLASSES, usual)

    spec = (await api.create_pod("web"))["spec"]

    assert (spec["priorityClassName"], spec["priority"]) == (name, 7)
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"


async def test_system_classes_are_there(api):
    spec = (await api.create_pod("web", priorityClassName="system-node-critical"))["spec"]

    assert spec["priority"] == 2000001000


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"priorityClassName": "nothing"},
            "no PriorityClass with name nothing was found",
            id="unknown class",
        ),
        pytest.param(
            {"priorityClassName": "system-node-critical", "priority": 5},
            "the integer value of priority (5) must not be provided in pod spec; "
            "priority admission controller computed 2000001000 from the given PriorityClass name",
            id="a priority that is not the class's",
        ),
        pytest.param(
            {"priorityClassName": "system-node-critical", "preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec",
            id="a policy that is not the class's",
        ),
    ],
)
async def test_priorities_are_admitted_by_class(api, spec, message):
    with pytest.raises(ApiError) as caught:
        await api.create_pod("web", **spec)

    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    assert message in caught.value.message


async def test_a_class_that_was_deleted_is_kept_by_its_pods(api):
    name = api.name("gold")
    await api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 1000})
    await api.create_pod("web", priorityClassName=name)

    await api.send("DELETE", PRIORITY_CLASSES.path("", name))

    pod = await api.patch(PODS, "web", {"metadata": {"labels": {"a": "1"}}})
    assert pod["spec"]["priority"] == 1000


# -- leases ------------------------------------------------------------------------------------


def lock(api, identity: str):
    settings = LeaderElection(resource_name="lock", resource_namespace=api.namespace)
    return make_lock(settings, api.client, api.clock, identity, "contract")


RECORD = LeaderElectionRecord(
    holder_identity="a",
    lease_duration_seconds=15,
    acquire_time="2026-01-01T00:00:00.000000Z",
    renew_time="2026-01-01T00:00:01.000000Z",
    leader_transitions=0,
)


async def test_times_of_a_lease_keep_their_microseconds(api):
    spec = {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.123456Z",
        "leaseTransitions": 3,
    }

    lease = await api.create(LEASES, {"metadata": {"name": "lock"}, "spec": spec})

    assert lease["spec"] == spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"leaseDurationSeconds": 0}, "must be greater than 0", id="duration"),
        pytest.param({"leaseTransitions": -1}, "must be greater than or equal to 0", id="changes"),
    ],
)
async def test_a_bad_lease_is_refused(api, spec, message):
    with pytest.raises(ApiError, match=message) as caught:
        await api.create(LEASES, {"metadata": {"name": "lock"}, "spec": spec})

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")


async def test_an_elections_lock_is_created_renewed_and_read_back(api):
    ours = lock(api, "a")
    with pytest.raises(NotFound):
        await ours.get(5.0)
    await ours.create(RECORD, 5.0)
    renewed = msgspec.structs.replace(RECORD, renew_time="2026-01-01T00:00:03.500000Z")
    await ours.update(renewed, 5.0)

    assert await lock(api, "b").get(5.0) == renewed


async def test_of_two_candidates_one_gets_the_lock(api):
    first, second = lock(api, "a"), lock(api, "b")
    await first.create(RECORD, 5.0)
    with pytest.raises(Conflict):
        await second.create(msgspec.structs.replace(RECORD, holder_identity="b"), 5.0)
    for each in (first, second):
        await each.get(5.0)

    await first.update(msgspec.structs.replace(RECORD, leader_transitions=1), 5.0)

    with pytest.raises(Conflict):
        await second.update(msgspec.structs.replace(RECORD, holder_identity="b"), 5.0)


# -- events ------------------------------------------------------------------------------------


async def record(api, times: int, *, event_type: str, reason: str, action: str, note: str) -> None:
    """Have the recorder write about a new pod ``web``."""
    pod = decode_pod(msgspec.json.encode(await api.create_pod("web")))
    recorder = EventRecorder(api.client, api.clock, hostname="host")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(recorder.run())
        for _ in range(times):
            recorder.event(pod_reference(pod), event_type, reason, action, note, "ksched")
            unwritten = await recorder.flush(timeout=10.0)
        running.cancel()
    assert (unwritten, recorder.rejected) == (0, 0)


async def test_the_recorder_writes_and_counts_events(api):
    note = "0/1 nodes are available"
    await record(
        api, 3, event_type="Warning", reason="FailedScheduling", action="Scheduling", note=note
    )

    [event] = (await api.list(EVENTS))["items"]

    assert (event["note"], event["reportingController"]) == (note, "ksched")
    assert event["series"]["count"] == 3
    [same] = (await api.list(CORE_EVENTS))["items"]
    assert (same["message"], same["reportingComponent"]) == (note, "ksched")
    assert same["involvedObject"] == event["regarding"]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        pytest.param("involvedObject.name=web", 1, id="the pod's"),
        pytest.param("involvedObject.name=db", 0, id="another's"),
        pytest.param("reason=Scheduled,type=Normal", 1, id="by reason and type"),
        pytest.param("involvedObject.kind=Node", 0, id="of another kind"),
    ],
)
async def test_events_are_selected_as_kubectl_describe_does(api, selector, found):
    await record(api, 1, event_type="Normal", reason="Scheduled", action="Binding", note="done")

    assert len(await api.names(CORE_EVENTS, field_selector=selector)) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"reportingController": ""}, "reportingController", id="nobody reports"),
        pytest.param({"action": ""}, "action", id="no action"),
        pytest.param({"note": "x" * 1025}, "can have at most 1024 characters", id="a long note"),
        pytest.param({"type": "Alarm"}, "type", id="an unknown type"),
        pytest.param({"eventTime": None}, "eventTime", id="no time"),
    ],
)
async def test_a_bad_event_is_refused(api, change, message):
    event = {
        "metadata": {"name": "web.1", "namespace": api.namespace},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "contract",
        "reportingInstance": "contract-1",
        "action": "Testing",
        "reason": "Tested",
        "type": "Normal",
        "regarding": {"kind": "Pod", "name": "web", "namespace": api.namespace},
    }

    with pytest.raises(ApiError, match=message) as caught:
        await api.create(EVENTS, {**event, **change})

    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
