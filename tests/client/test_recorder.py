"""Events: written in the background, counted in series, bounded."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import asynccontextmanager

import pytest

from ksched.api.objects import ObjectMeta, Pod
from ksched.client.rate_limit import RateLimiter
from ksched.client.recorder import EventRecorder, ObjectReference, pod_reference, truncate_note
from ksched.client.rest import ApiClient
from ksched.errors import Unavailable
from ksched.transport import NOT_SENT, STRATEGIC_MERGE_PATCH, Response

POD = pod_reference(
    Pod(metadata=ObjectMeta(name="web-0", namespace="ns", uid="u1", resource_version="7"))
)


class EventServer:
    """Keeps what is posted; ``answers`` come first."""

    def __init__(self):
        self.answers = []
        self.created = []
        self.patched = []
        self.delay = 0.0

    async def request(self, method, path, body=None, *, content_type="", timeout=30.0):
        await asyncio.sleep(self.delay)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            if answer is not None:
                return answer
        if method == "POST":
            self.created.append(json.loads(body))
            return Response(201, {}, b"{}")
        assert (method, content_type) == ("PATCH", STRATEGIC_MERGE_PATCH)
        self.patched.append((path, json.loads(body)))
        return Response(200, {}, b"{}")


@pytest.fixture
def server():
    return EventServer()


@pytest.fixture
def record(server, clock):
    @asynccontextmanager
    async def run(*, limiter=None, **options):
        client = ApiClient(server, clock, limiter, rng=random.Random(1))
        recorder = EventRecorder(client, clock, hostname="host", rng=random.Random(1), **options)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(recorder.run())
            yield recorder
            task.cancel()

    return run


def failed(recorder, regarding=POD, note="0/5 nodes are available"):
    recorder.event(
        regarding, "Warning", "FailedScheduling", "Scheduling", note, "default-scheduler"
    )


async def test_event_has_every_field_that_kubectl_shows(server, record):
    async with record() as recorder:
        recorder.event(POD, "Normal", "Scheduled", "Binding", "to n1", "default-scheduler")
        assert await recorder.flush(1) == 0
    [event] = server.created
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": event["metadata"]["name"], "namespace": "ns"},
        "eventTime": "2023-11-14T22:13:20.000000Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-host",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": "ns",
            "name": "web-0",
            "uid": "u1",
            "resourceVersion": "7",
        },
        "note": "to n1",
        "type": "Normal",
    }
    prefix, _, nanos = event["metadata"]["name"].rpartition(".")
    assert prefix == "web-0"
    assert int(nanos, 16) == 1_700_000_000_000_000_000


async def test_event_of_a_cluster_scoped_object_goes_to_default(server, record):
    async with record() as recorder:
        failed(recorder, ObjectReference(kind="Node", name="n1"))
        await recorder.flush(1)
    assert server.created[0]["metadata"]["namespace"] == "default"


async def test_repetitions_become_a_series(server, record, clock):
    async with record() as recorder:
        failed(recorder)
        await recorder.flush(1)
        await clock.sleep(60)
        failed(recorder)
        await clock.sleep(1)
        [(path, patch)] = server.patched
        name = server.created[0]["metadata"]["name"]
        assert path == f"/apis/events.k8s.io/v1/namespaces/ns/events/{name}"
        assert patch == {"series": {"count": 2, "lastObservedTime": "2023-11-14T22:14:20.000000Z"}}
        for _ in range(10):
            failed(recorder)
        await clock.sleep(1)
        assert len(server.patched) == 1
        # Six quiet minutes end the series; the true count is written then.
        await clock.sleep(8 * 60)
        assert [patch["series"]["count"] for _, patch in server.patched] == [2, 12]
        failed(recorder)
        await clock.sleep(1)
    assert len(server.created) == 2


async def test_that_a_pod_was_bound_is_written_and_not_remembered(server, record, clock):
    async with record() as recorder:
        recorder.event(POD, "Normal", "Scheduled", "Binding", "to n1", "default-scheduler")
        assert not recorder._series
        server.answers = [Unavailable(0, NOT_SENT, "refused")]
        assert await recorder.flush(60) == 0
    assert [event["reason"] for event in server.created] == ["Scheduled"]


async def test_series_that_goes_on_is_refreshed_every_half_hour(server, record, clock):
    async with record() as recorder:
        for _ in range(65):
            failed(recorder)
            await clock.sleep(60)
    assert [patch["series"]["count"] for _, patch in server.patched] == pytest.approx(
        [2, 32, 62], abs=2
    )
    assert len(server.created) == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"resource_version": "8"}, id="version of the pod"),
        pytest.param({"uid": "u2"}, id="pod"),
    ],
)
async def test_what_differs_is_another_event(server, record, other):
    import msgspec

    async with record() as recorder:
        failed(recorder)
        failed(recorder, msgspec.structs.replace(POD, **other))
        await recorder.flush(1)
    assert len(server.created) == 2
    assert len({event["metadata"]["name"] for event in server.created}) == 2
    assert not server.patched


async def test_recording_never_waits_and_the_overflow_is_counted(server, record, clock):
    server.delay = 3600.0
    async with record(queue_limit=10, workers=2) as recorder:
        await clock.sleep(0)
        for number in range(100):
            failed(recorder, ObjectReference(kind="Pod", name=f"p{number}"))
            if number < 5:
                await clock.sleep(0.001)
        assert recorder.dropped == 100 - 10 - 2
        assert clock.now() < 1


async def test_dropped_event_is_recorded_when_it_happens_again(server, record, clock):
    async with record(queue_limit=1) as recorder:
        for name in ("a", "b", "b"):
            failed(recorder, ObjectReference(kind="Pod", name=name))
        await recorder.flush(1)
        failed(recorder, ObjectReference(kind="Pod", name="b"))
        await recorder.flush(1)
    assert recorder.dropped == 2
    assert [event["regarding"]["name"] for event in server.created] == ["a", "b"]


async def test_rate_limit_delays_only_events(server, record, clock):
    limiter = RateLimiter(qps=1, burst=1, clock=clock)
    async with record(limiter=limiter) as recorder:
        for number in range(5):
            failed(recorder, ObjectReference(kind="Pod", name=f"p{number}"))
        assert clock.now() == 0
        await clock.sleep(2.5)
        assert len(server.created) == 3
        assert await recorder.flush(60) == 0
    assert len(server.created) == 5


async def test_an_event_wakes_one_worker(server, record):
    async with record(workers=4) as recorder:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting = list(recorder._idle)
        assert len(waiting) == 4
        failed(recorder)
        assert [one.done() for one in waiting].count(True) == 1
        assert await recorder.flush(1) == 0
    assert len(server.created) == 1


async def test_events_wait_while_there_is_more_urgent_work(server, record, clock):
    is_busy = True
    async with record(gives_way=lambda: is_busy) as recorder:
        failed(recorder)
        await clock.sleep(5)
        assert server.created == []
        is_busy = False
        await clock.sleep(0.2)
        assert len(server.created) == 1


async def test_events_do_not_wait_for_ever(server, record, clock):
    async with record(gives_way=lambda: True) as recorder:
        failed(recorder)
        await clock.sleep(9.8)
        assert server.created == []
        await clock.sleep(0.4)
        assert len(server.created) == 1


async def test_an_event_that_goes_on_happening_does_not_keep_others_waiting(server, record, clock):
    other = pod_reference(Pod(metadata=ObjectMeta(name="web-1", namespace="ns", uid="u2")))
    async with record(gives_way=lambda: True) as recorder:
        failed(recorder)
        failed(recorder, regarding=other)
        for _ in range(2):
            await clock.sleep(5)
            failed(recorder)
        await clock.sleep(0.4)
        assert len(server.created) == 2


async def test_an_event_that_waits_is_found_when_it_happens_again(server, record, clock):
    pods = [
        pod_reference(Pod(metadata=ObjectMeta(name=f"p{number}", namespace="ns", uid=f"u{number}")))
        for number in range(5000)
    ]
    async with record(gives_way=lambda: True) as recorder:
        for pod in pods:
            failed(recorder, regarding=pod)
        failed(recorder, regarding=pods[0])
        await clock.sleep(11)
        assert await recorder.flush(60) == 0
    assert len(server.created) == len(pods)


async def test_unreachable_server_is_tried_again_later(server, record, clock):
    server.answers = [Unavailable(0, "AnswerLost", "reset"), Unavailable(500, "", "oops")]
    async with record() as recorder:
        failed(recorder)
        await clock.sleep(60)
    assert len(server.created) == 1
    assert recorder.rejected == 0


async def test_server_that_stays_unreachable_costs_the_event(server, record, clock):
    server.answers = [Unavailable(500, "", "oops")] * 12
    async with record() as recorder:
        failed(recorder)
        await clock.sleep(600)
        assert recorder.rejected == 1
        failed(recorder)
        await clock.sleep(1)
    assert len(server.created) == 1


@pytest.mark.parametrize("code", [403, 404, 422])
async def test_refused_event_is_not_tried_again(server, record, clock, code):
    server.answers = [Response(code, {}, b"namespace is being terminated")]
    async with record() as recorder:
        failed(recorder)
        await clock.sleep(600)
    assert recorder.rejected == 1
    assert server.created == []


async def test_event_that_is_there_already_counts_as_written(server, record, clock):
    server.answers = [Unavailable(0, "AnswerLost", "reset"), Response(409, {}, b"exists")]
    async with record() as recorder:
        failed(recorder)
        await clock.sleep(60)
        failed(recorder)
        await clock.sleep(1)
    assert recorder.rejected == 0
    assert [patch["series"]["count"] for _, patch in server.patched] == [2]


async def test_series_whose_event_expired_begins_anew(server, record, clock):
    async with record() as recorder:
        failed(recorder)
        await recorder.flush(1)
        server.answers = [Response(404, {}, b"not found")]
        failed(recorder)
        await clock.sleep(1)
    assert len(server.created) == 2
    assert server.created[1]["series"]["count"] == 2


async def test_second_occurrence_during_the_first_write_is_not_lost(server, record, clock):
    server.delay = 5.0
    async with record() as recorder:
        failed(recorder)
        await clock.sleep(1)
        failed(recorder)
        await clock.sleep(30)
    assert len(server.created) == 1
    assert [patch["series"]["count"] for _, patch in server.patched] == [2]


async def test_flush_writes_open_counts_and_gives_up_at_its_deadline(server, record, clock):
    async with record() as recorder:
        for _ in range(7):
            failed(recorder)
            await clock.sleep(0.1)
        assert await recorder.flush(5) == 0
        assert server.patched[-1][1]["series"]["count"] == 7
        server.delay = 3600
        failed(recorder, ObjectReference(kind="Pod", name="late"))
        before = clock.now()
        assert await recorder.flush(5) == 1
        assert clock.now() - before == pytest.approx(5)


async def test_series_are_bounded(server, record, clock):
    async with record(queue_limit=100_000) as recorder:
        for number in range(6000):
            failed(recorder, ObjectReference(kind="Pod", name=f"p{number}"))
        await recorder.flush(60)
        assert len(recorder._series) <= 4096
    assert len(server.created) == 6000


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        pytest.param("short", "short", id="short"),
        pytest.param("x" * 1024, "x" * 1024, id="just fits"),
        pytest.param("x" * 1025, "x" * 1020 + " ...", id="one too many"),
        pytest.param("ü" * 513, "ü" * 510 + " ...", id="two bytes each"),
        pytest.param("x" + "ü" * 512, "x" + "ü" * 509 + " ...", id="cut between bytes"),
    ],
)
def test_notes_are_cut_at_1024_bytes(note, expected):
    assert truncate_note(note) == expected
    assert len(expected.encode()) <= 1024


async def test_name_that_no_event_may_have_is_replaced(server, record):
    async with record() as recorder:
        failed(recorder, ObjectReference(kind="Pod", name="x" * 253))
        await recorder.flush(1)
    assert len(server.created[0]["metadata"]["name"]) == 36


async def test_refused_connection_is_retried_without_waiting_for_long(server, record, clock):
    server.answers = [Unavailable(0, NOT_SENT, "refused")]
    async with record() as recorder:
        failed(recorder)
        assert await recorder.flush(2) == 0
    assert len(server.created) == 1
