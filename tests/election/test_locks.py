"""What the locks write, to the letter: other programs read it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.in_process import InProcessTransport
from ksched.client.rest import ApiClient
from ksched.configuration.model import LeaderElection
from ksched.configuration.validation import RESOURCE_LOCKS
from ksched.election.locks import (
    ANNOTATION,
    UNKNOWN_LEADER,
    ResourceLock,
    make_identity,
    make_lock,
)
from ksched.election.record import NOBODY, LeaderElectionRecord, from_annotation, from_lease
from ksched.errors import Conflict, InvalidObject, NotFound
from ksched.testing.virtual_time import VirtualClock

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
RECORD = LeaderElectionRecord(
    holder_identity="me",
    lease_duration_seconds=15,
    acquire_time="2026-11-16T02:43:11.000001Z",
    renew_time="2026-11-16T02:43:13.500000Z",
    leader_transitions=3,
)


class Site:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.client = ApiClient(InProcessTransport(ApiServer(self.clock)), self.clock)

    def lock(self, kind: str = "leases", identity: str = "me") -> ResourceLock:
        config = LeaderElection(resource_lock=kind)
        return make_lock(config, self.client, self.clock, identity, "default-scheduler")

    async def read(self, path: str) -> dict[str, Any]:
        obj: dict[str, Any] = msgspec.json.decode(await self.client.request("GET", path))
        return obj


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize("kind", RESOURCE_LOCKS)
async def test_every_lock_keeps_its_record(site: Site, kind: str) -> None:
    lock, other = site.lock(kind), site.lock(kind, "other")
    with pytest.raises(NotFound):
        await lock.get(1)
    await lock.create(RECORD, 1)
    with pytest.raises(Conflict):
        await other.create(RECORD, 1)
    assert await other.get(1) == RECORD

    renewed = msgspec.structs.replace(RECORD, renew_time="2026-11-16T02:43:15.000000Z")
    await lock.update(renewed, 1)
    with pytest.raises(Conflict):
        await other.update(RECORD, 1)
    assert await other.get(1) == renewed
    assert lock.describe() == "kube-system/kube-scheduler"


async def test_a_lease_is_written_as_client_go_does(site: Site) -> None:
    await site.lock().create(RECORD, 1)

    assert (await site.read(f"{LEASES}/kube-scheduler"))["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-16T02:43:11.000001Z",
        "renewTime": "2026-11-16T02:43:13.500000Z",
        "leaseTransitions": 3,
    }


@pytest.mark.parametrize("plural", ["endpoints", "configmaps"])
async def test_an_annotation_is_written_as_client_go_did(site: Site, plural: str) -> None:
    await site.lock(plural).create(RECORD, 1)
    obj = await site.read(f"/api/v1/namespaces/kube-system/{plural}/kube-scheduler")

    assert msgspec.json.decode(obj["metadata"]["annotations"][ANNOTATION]) == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-16T02:43:11.000001Z",
        "renewTime": "2026-11-16T02:43:13.500000Z",
        "leaderTransitions": 3,
    }


@pytest.mark.parametrize(
    ("text", "record"),
    [
        pytest.param(
            '{"holderIdentity":"x","leaseDurationSeconds":15,"acquireTime":"2020-01-01T00:00:00Z",'
            '"renewTime":"2020-01-01T00:00:00Z","leaderTransitions":2}',
            LeaderElectionRecord(
                holder_identity="x",
                lease_duration_seconds=15,
                acquire_time="2020-01-01T00:00:00Z",
                renew_time="2020-01-01T00:00:00Z",
                leader_transitions=2,
            ),
            id="by an old client-go, in whole seconds",
        ),
        pytest.param(
            '{"holderIdentity":"","acquireTime":null,"renewTime":null}', NOBODY, id="nulls"
        ),
        pytest.param(
            '{"holderIdentity":"x","strategy":"OldestEmulationVersion"}',
            LeaderElectionRecord(holder_identity="x"),
            id="with fields we do not know",
        ),
    ],
)
def test_annotations_of_others_are_understood(text: str, record: LeaderElectionRecord) -> None:
    assert from_annotation("kube-system/x", text) == record


@pytest.mark.parametrize("text", ["", "{", "[]", '{"leaseDurationSeconds": "long"}'])
def test_an_annotation_that_is_no_record_is_named(text: str) -> None:
    with pytest.raises(InvalidObject, match="leader election record of kube-system/x"):
        from_annotation("kube-system/x", text)


@pytest.mark.parametrize(
    "lease",
    [
        pytest.param({}, id="no spec"),
        pytest.param({"spec": None}, id="null"),
        pytest.param({"spec": {"holderIdentity": None, "leaseTransitions": None}}, id="nulls"),
    ],
)
def test_a_lease_that_says_nothing_is_nobodys(lease: dict[str, Any]) -> None:
    assert from_lease(lease) == NOBODY


@pytest.mark.parametrize(
    ("kind", "about"),
    [
        pytest.param("leases", ("coordination.k8s.io/v1", "Lease"), id="lease"),
        pytest.param("endpoints", ("v1", "Endpoints"), id="endpoints"),
        pytest.param("configmapsleases", ("v1", "ConfigMap"), id="the first of two"),
    ],
)
async def test_events_are_about_the_lock(site: Site, kind: str, about: tuple[str, str]) -> None:
    lock = site.lock(kind)
    await lock.create(RECORD, 1)
    await lock.record_event("became leader", 1)
    (event,) = (await site.read("/api/v1/namespaces/kube-system/events"))["items"]

    assert event["metadata"]["name"].startswith("kube-scheduler.")
    assert (event["type"], event["reason"]) == ("Normal", "LeaderElection")
    assert event["message"] == "me became leader"
    assert event["source"] == {"component": "default-scheduler"}
    assert event["count"] == 1
    subject = event["involvedObject"]
    assert (subject["apiVersion"], subject["kind"]) == about
    assert (subject["namespace"], subject["name"]) == ("kube-system", "kube-scheduler")
    assert subject["uid"]


def test_no_two_processes_have_one_identity() -> None:
    first, second = make_identity("node-1"), make_identity("node-1")
    assert first.startswith("node-1_")
    assert first != second


async def test_the_second_object_is_made_when_only_the_first_is_there(site: Site) -> None:
    await site.lock("endpoints", "old").create(RECORD, 1)
    both = site.lock("endpointsleases")
    assert (await both.get(1)).holder_identity == "me"

    await both.update(RECORD, 1)

    assert await site.lock("leases").get(1) == RECORD


async def test_a_first_object_that_somebody_left_behind_does_not_stop_the_second(
    site: Site,
) -> None:
    left_behind = msgspec.structs.replace(RECORD, holder_identity="old")
    await site.lock("endpoints", "old").create(left_behind, 1)
    both = site.lock("endpointsleases")
    await both.create(RECORD, 1)

    assert await site.lock("leases").get(1) == RECORD
    # Held by two different people: by nobody whom one could believe.
    assert (await both.get(1)).holder_identity == UNKNOWN_LEADER
