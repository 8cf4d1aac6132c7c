"""Verbs, errors and retries, on virtual time against scripted answers.

Covers ``ksched.client.api_status`` too.
"""

from __future__ import annotations

import asyncio
import json
import random
from email.utils import formatdate
from typing import cast

import pytest

from ksched.api import resources
from ksched.client.rate_limit import RateLimiter
from ksched.client.rest import ApiClient, Selection
from ksched.client.retry import NO_RETRY, REPEATABLE, may_have_happened
from ksched.errors import ApiError, Conflict, Gone, NotFound, TooManyRequests, Unavailable
from ksched.testing.virtual_time import EPOCH
from ksched.transport import JSON, NOT_SENT, STRATEGIC_MERGE_PATCH, Response, Transport


class Script:
    """A transport that plays answers in order; the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers) or [Response(200, {}, b"{}")]
        self.asked = []
        self.times = []

    async def request(self, method, path, body=None, *, content_type=JSON, timeout=30.0):
        self.asked.append((method, path, body, content_type))
        self.times.append(round(asyncio.get_running_loop().time(), 3))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


OK = Response(200, {}, b"{}")
REFUSED = Unavailable(0, NOT_SENT, "refused")
LOST = Unavailable(0, "AnswerLost", "reset")


def failing(code, body=b"", **headers):
    return Response(code, {key.replace("_", "-"): value for key, value in headers.items()}, body)


@pytest.fixture
def client_of(clock):
    def make(*answers, limiter=None):
        script = Script(*answers)
        return ApiClient(cast(Transport, script), clock, limiter, rng=random.Random(3)), script

    return make


# -- verbs --------------------------------------------------------------------------------------


async def test_bind_posts_a_binding_with_the_uid(client_of):
    client, script = client_of(Response(201, {}, b'{"kind":"Status"}'))
    await client.bind("ns", "web-0", "uid-1", "node-7")
    [(method, path, body, content_type)] = script.asked
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/pods/web-0/binding")
    assert content_type == JSON
    assert json.loads(body) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web-0", "namespace": "ns", "uid": "uid-1"},
        "target": {"kind": "Node", "name": "node-7"},
    }


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param(
            lambda c: c.patch_pod_status("ns", "p", b"{}"),
            ("PATCH", "/api/v1/namespaces/ns/pods/p/status", b"{}", STRATEGIC_MERGE_PATCH),
            id="pod status",
        ),
        pytest.param(
            lambda c: c.delete_pod("ns", "p", "u"),
            (
                "DELETE",
                "/api/v1/namespaces/ns/pods/p",
                b'{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u"}}',
                JSON,
            ),
            id="delete this very pod",
        ),
        pytest.param(
            lambda c: c.delete_pod("ns", "p"),
            (
                "DELETE",
                "/api/v1/namespaces/ns/pods/p",
                b'{"apiVersion":"v1","kind":"DeleteOptions"}',
                JSON,
            ),
            id="delete a pod",
        ),
        pytest.param(
            lambda c: c.create_event("ns", b"{}"),
            ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events", b"{}", JSON),
            id="event",
        ),
        pytest.param(
            lambda c: c.get(resources.LEASES, "kube-system", "kube-scheduler"),
            (
                "GET",
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
                None,
                JSON,
            ),
            id="lease",
        ),
        pytest.param(
            lambda c: c.update(resources.CONFIG_MAPS, "a", "b", b"{}"),
            ("PUT", "/api/v1/namespaces/a/configmaps/b", b"{}", JSON),
            id="config map",
        ),
        pytest.param(
            lambda c: c.update(resources.PERSISTENT_VOLUMES, "", "pv", b"{}"),
            ("PUT", "/api/v1/persistentvolumes/pv", b"{}", JSON),
            id="cluster-scoped",
        ),
        pytest.param(
            lambda c: c.get(resources.PODS, "ns", "../../nodes/x"),
            ("GET", "/api/v1/namespaces/ns/pods/..%2F..%2Fnodes%2Fx", None, JSON),
            id="name that would climb",
        ),
    ],
)
async def test_verbs(client_of, call, expected):
    client, script = client_of()
    await call(client)
    assert script.asked == [expected]


async def test_list_page(client_of):
    body = b'{"metadata":{"resourceVersion":"7","continue":"t"},"items":[{"a":1},{"a":2}]}'
    client, script = client_of(Response(200, {}, body))
    page = await client.list_page(
        resources.PODS, Selection("ns", "a!=b"), limit=2, continue_token="x/y="
    )
    assert [bytes(item) for item in page.items] == [b'{"a":1}', b'{"a":2}']
    assert (page.metadata.resource_version, page.metadata.continue_token) == ("7", "t")
    assert script.asked[0][1] == (
        "/api/v1/namespaces/ns/pods?limit=2&continue=x%2Fy%3D&fieldSelector=a%21%3Db"
    )


# -- errors -------------------------------------------------------------------------------------


def status(code, reason="", message="", **details):
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return json.dumps(body | {"details": details}).encode()


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        pytest.param(
            failing(404, status(404, "NotFound", 'pods "p" not found')),
            NotFound,
            '404 NotFound: GET /api/v1/namespaces/ns/pods/p: pods "p" not found',
            id="404",
        ),
        pytest.param(
            failing(409, status(409, "AlreadyExists", "exists")),
            Conflict,
            "409 AlreadyExists: GET /api/v1/namespaces/ns/pods/p: exists",
            id="409 exists",
        ),
        pytest.param(
            failing(409, status(409, "Conflict", "modified")),
            Conflict,
            "409 Conflict: GET /api/v1/namespaces/ns/pods/p: modified",
            id="409 modified",
        ),
        pytest.param(
            failing(410, status(410, "Expired", "too old")),
            Gone,
            "410 Expired: GET /api/v1/namespaces/ns/pods/p: too old",
            id="410",
        ),
        pytest.param(
            failing(500, b"etcdserver: request timed out\n"),
            Unavailable,
            "500: GET /api/v1/namespaces/ns/pods/p: etcdserver: request timed out",
            id="plain text",
        ),
        pytest.param(
            failing(
                502,
                b"<html><style>p{}</style><head><title>502</title></head>"
                b"<body>Bad &amp; sad</body></html>",
            ),
            Unavailable,
            "502: GET /api/v1/namespaces/ns/pods/p: 502 Bad & sad",
            id="a web page",
        ),
        pytest.param(
            failing(503),
            Unavailable,
            "503: GET /api/v1/namespaces/ns/pods/p: empty answer",
            id="nothing",
        ),
        pytest.param(
            failing(403, status(403, "Forbidden", "no")),
            ApiError,
            "403 Forbidden: GET /api/v1/namespaces/ns/pods/p: no",
            id="403",
        ),
        pytest.param(
            failing(500, b"\xff\x1b[31m\x00"),
            Unavailable,
            "500: GET /api/v1/namespaces/ns/pods/p: � [31m",
            id="bytes",
        ),
        pytest.param(
            failing(302, b"elsewhere"),
            ApiError,
            "302: GET /api/v1/namespaces/ns/pods/p: elsewhere",
            id="redirect",
        ),
        pytest.param(
            failing(101, b""),
            ApiError,
            "101: GET /api/v1/namespaces/ns/pods/p: empty answer",
            id="101",
        ),
    ],
)
async def test_failures_become_typed_errors_that_name_verb_path_and_code(
    client_of, answer, kind, text
):
    client, _ = client_of(answer)
    with pytest.raises(ApiError) as caught:
        await client.get(resources.PODS, "ns", "p", retry=NO_RETRY)
    assert type(caught.value) is kind
    assert str(caught.value) == text
    assert caught.value.code == answer.status


async def test_long_error_texts_are_cut(client_of):
    client, _ = client_of(failing(500, b"x" * 10_000_000))
    with pytest.raises(Unavailable) as caught:
        await client.get(resources.PODS, "ns", "p", retry=NO_RETRY)
    assert len(str(caught.value)) < 500


# -- retries ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        pytest.param(failing(429, b"slow", **{"retry-after": "3"}), 3, id="seconds"),
        pytest.param(failing(429, b"slow", **{"Retry-After": "3"}), 3, id="in capitals"),
        pytest.param(
            failing(429, b"slow", **{"retry-after": formatdate(EPOCH + 4, usegmt=True)}),
            4,
            id="date",
        ),
        pytest.param(failing(429, status(429, retryAfterSeconds=5)), 5, id="in the status"),
        pytest.param(failing(503, b"", **{"retry-after": "2"}), 2, id="503"),
    ],
)
@pytest.mark.parametrize("verb", ["bind", "patch"])
async def test_server_that_asks_for_patience_gets_it(client_of, answer, seconds, verb):
    client, script = client_of(answer, OK)
    if verb == "bind":
        await client.bind("ns", "p", "u", "n")
    else:
        await client.patch(resources.PODS, "ns", "p", b"{}")
    assert script.times == [0, seconds]


@pytest.mark.parametrize("text", ["soon", "-5", "Mon, 99 Foo", ""])
async def test_nonsense_in_retry_after_is_survived(client_of, text):
    client, script = client_of(failing(429, b"", **{"retry-after": text}), OK)
    await client.bind("ns", "p", "u", "n")
    assert len(script.times) == 2


@pytest.mark.parametrize(
    ("answer", "repeated"),
    [
        pytest.param(REFUSED, True, id="refused"),
        pytest.param(LOST, False, id="answer lost"),
        pytest.param(failing(500), False, id="500"),
        pytest.param(failing(504), False, id="504"),
        pytest.param(failing(409), False, id="409"),
        pytest.param(failing(403), False, id="403"),
    ],
)
async def test_bind_is_repeated_only_when_it_cannot_have_happened(client_of, answer, repeated):
    client, script = client_of(answer, OK)
    if repeated:
        await client.bind("ns", "p", "u", "n")
    else:
        with pytest.raises(ApiError):
            await client.bind("ns", "p", "u", "n")
    assert len(script.asked) == 1 + repeated


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (LOST, True),
        (REFUSED, False),
        (Unavailable(500, "", ""), True),
        (Unavailable(503, "", "", 1.0), False),
        (Conflict(409, "Conflict", ""), False),
        (TooManyRequests(429, "", ""), False),
    ],
    ids=str,
)
def test_what_may_have_happened(error, expected):
    assert may_have_happened(error) is expected


@pytest.mark.parametrize("answer", [REFUSED, LOST, failing(500), failing(503)], ids=str)
async def test_reads_are_repeated_with_growing_pauses_until_the_deadline(client_of, answer):
    client, script = client_of(answer)
    with pytest.raises(Unavailable):
        await client.get(resources.PODS, "ns", "p")
    assert len(script.times) == REPEATABLE.tries
    pauses = [b - a for a, b in zip(script.times, script.times[1:], strict=False)]
    assert 0.1 <= pauses[0] <= 0.15
    assert 5 <= pauses[-1] <= 7.5
    assert script.times[-1] < REPEATABLE.deadline


async def test_patience_beyond_the_deadline_is_refused_at_once(client_of):
    client, script = client_of(failing(429, b"", **{"retry-after": "86400"}))
    with pytest.raises(TooManyRequests) as caught:
        await client.get(resources.PODS, "ns", "p")
    assert caught.value.retry_after == 86400
    assert script.times == [0]


@pytest.mark.parametrize(
    ("answer", "repeated"),
    [
        (failing(500), True),
        (failing(503), True),
        (failing(409), True),
        (REFUSED, True),
        (failing(404), False),
        (failing(422), False),
    ],
    ids=str,
)
async def test_status_patch_is_tried_four_times_within_half_a_second(client_of, answer, repeated):
    client, script = client_of(answer)
    with pytest.raises(ApiError):
        await client.patch_pod_status("ns", "p", b"{}")
    if repeated:
        assert len(script.times) == 4
        assert 0.31 <= script.times[-1] <= 0.31 * 1.1 + 0.01
    else:
        assert len(script.times) == 1


async def test_every_try_takes_a_token(client_of, clock):
    limiter = RateLimiter(qps=1, burst=1, clock=clock)
    client, script = client_of(failing(500), failing(500), OK, limiter=limiter)
    await client.get(resources.PODS, "ns", "p")
    assert script.times == [0, 1, 2]


async def test_requests_in_flight_are_counted_but_not_those_that_wait_for_a_token(clock):
    class Slow(Script):
        async def request(self, *args, **kwargs):
            await asyncio.sleep(10)
            return await super().request(*args, **kwargs)

    limiter = RateLimiter(qps=1, burst=2, clock=clock)
    client = ApiClient(cast(Transport, Slow(OK, OK, LOST, OK)), clock, limiter)
    asking = [asyncio.ensure_future(client.get(resources.PODS, "ns", "p")) for _ in range(4)]
    await asyncio.sleep(0.5)
    assert client.in_flight == 2
    asking[0].cancel()
    await asyncio.sleep(2)
    assert client.in_flight == 3
    await asyncio.gather(*asking, return_exceptions=True)
    assert client.in_flight == 0


async def test_cancelled_request_stops_at_once(client_of):
    client, script = client_of(failing(429, b"", **{"retry-after": "30"}))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await client.get(resources.PODS, "ns", "p")
    assert script.times == [0]
