"""Decisions about requests, with the embedded API server's reviews.

Covers ``ksched.web.access_reviews`` too.
"""

from __future__ import annotations

from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import msgspec
import pytest

from ksched.apiserver.access_reviews import ACCESS_REVIEWS, TOKEN_REVIEWS
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.in_process import InProcessTransport
from ksched.configuration.front_proxy import FrontProxy
from ksched.testing.virtual_time import VirtualClock
from ksched.transport import Response
from ksched.web import access_reviews as module
from ksched.web.access import Access, Credentials, credentials_of
from ksched.web.access_reviews import AccessReviews, ExpiringCache, ReviewFailed, User
from ksched.web.server_context import Authorities

CA = b"the CA"
USER = Authorities(users=CA)


class Setting:
    """An API server that reviews, and the access that depends on it."""

    def __init__(self, paths=("/healthz", "/debug/open/*"), transport=None, **ttls):
        self.clock = VirtualClock()
        self.server = ApiServer(self.clock)
        transport = transport or InProcessTransport(self.server)
        self.reviews = AccessReviews(transport, transport, self.clock, **ttls)
        self.authorities = USER
        self.access = Access(
            self.reviews,
            self.clock,
            always_allow_paths=paths,
            authorities=lambda: self.authorities,
            front_proxy=FrontProxy,
        )

    async def status(self, path="/metrics", method="GET", **credentials):
        refusal = await self.access.refusal(method, path, Credentials(**credentials))
        if refusal is None:
            return 200
        assert msgspec.json.decode(refusal.body)["code"] == refusal.status
        return refusal.status

    def count(self, path):
        return sum(audit.path == path for audit in self.server.requests)


def certificate(name="ada", groups=(), after="Jan  1 00:00:00 2090 GMT"):
    subject = [*((("organizationName", group),) for group in groups), (("commonName", name),)]
    return {"subject": tuple(subject), "notAfter": after}


async def test_without_credentials_only_open_paths_are_read():
    setting = Setting()
    assert await setting.status("/healthz") == 200
    assert await setting.status("/debug/open/page") == 200
    for path in ("/metrics", "/configz", "/debug/queue", "/healthz/ping", "/nowhere", "/"):
        assert await setting.status(path) == 401
    assert not setting.server.requests, "strangers cost the API server nothing"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_open_paths_are_open_to_readers_only(method):
    setting = Setting(paths=("/*",))
    assert await setting.status("/reload", "GET") == 200
    assert await setting.status("/reload", "HEAD") == 200
    assert await setting.status("/reload", method) == 401


@pytest.mark.parametrize(
    "header", ["Basic YTpi", "Bearer", "Bearer ", "Bearer a b", "ada", "bearer  "]
)
async def test_other_authorization_headers_are_nothing(header):
    assert await Setting().status(authorization=header) == 401


async def test_token_and_right_decide():
    setting = Setting()
    setting.server.reviews.invalid_tokens.add("stolen")
    setting.server.reviews.denied_users.add("bob")
    assert await setting.status(authorization="Bearer ada") == 200
    assert await setting.status(authorization="bearer ada") == 200
    assert await setting.status(authorization="Bearer stolen") == 401
    assert await setting.status(authorization="Bearer bob") == 403
    refusal = await setting.access.refusal("GET", "/metrics", Credentials("Bearer bob"))
    assert refusal is not None
    assert msgspec.json.decode(refusal.body) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'forbidden: User "bob" cannot get path "/metrics"',
        "reason": "Forbidden",
        "code": 403,
    }


async def test_verdicts_are_cached_for_their_time():
    setting = Setting(token_seconds=30, allowed_seconds=20, denied_seconds=10)
    setting.server.reviews.denied_users.add("bob")
    for user, path in (("ada", "/metrics"), ("bob", "/metrics"), ("ada", "/configz")):
        for _ in range(3):
            await setting.status(path, authorization=f"Bearer {user}")
    assert (setting.count(TOKEN_REVIEWS), setting.count(ACCESS_REVIEWS)) == (2, 3)
    setting.server.reviews.denied_users.clear()
    await setting.clock.sleep(10)
    assert await setting.status(authorization="Bearer bob") == 200
    setting.server.reviews.denied_users.add("ada")
    assert await setting.status(authorization="Bearer ada") == 200
    await setting.clock.sleep(10)
    assert await setting.status(authorization="Bearer ada") == 403
    assert setting.count(TOKEN_REVIEWS) == 2
    setting.server.reviews.invalid_tokens.add("ada")
    await setting.clock.sleep(10)
    assert await setting.status(authorization="Bearer ada") == 401


async def test_invalid_tokens_are_cached_too():
    setting = Setting()
    setting.server.reviews.invalid_tokens.add("stolen")
    for _ in range(5):
        assert await setting.status(authorization="Bearer stolen") == 401
    assert setting.count(TOKEN_REVIEWS) == 1


async def test_certificate_names_user_and_groups():
    setting = Setting()
    setting.server.reviews.denied_users.add("bob")
    by_ca = {"verified_by": USER}
    assert await setting.status(certificate=certificate("ada"), **by_ca) == 200
    assert await setting.status(certificate=certificate("bob"), **by_ca) == 403
    masters = certificate("bob", ["x", "system:masters"])
    assert await setting.status(certificate=masters, **by_ca) == 200
    assert await setting.status(certificate=certificate(""), **by_ca) == 401
    assert not setting.count(TOKEN_REVIEWS)


async def test_certificate_is_not_believed_after_its_time_nor_after_its_ca():
    setting = Setting()
    end = datetime.fromtimestamp(setting.clock.wall() + 60, UTC).strftime("%b %d %H:%M:%S %Y GMT")
    credentials = {"certificate": certificate(after=end), "verified_by": USER}
    assert await setting.status(**credentials) == 200
    await setting.clock.sleep(61)
    assert await setting.status(**credentials) == 401
    credentials["certificate"] = certificate()
    assert await setting.status(**credentials) == 200
    setting.authorities = Authorities(users=b"another CA")
    assert await setting.status(**credentials) == 401


async def test_proxy_is_not_believed_after_its_time_nor_after_its_ca():
    setting = Setting()
    proxies = Authorities(proxies=CA)
    end = datetime.fromtimestamp(setting.clock.wall() + 60, UTC).strftime("%b %d %H:%M:%S %Y GMT")
    credentials = {"certificate": certificate("proxy", after=end), "verified_by": proxies}
    credentials["headers"] = (("X-Remote-User", "ada"), ("X-Remote-Group", "system:masters"))
    assert await setting.status(**credentials) == 401, "the CA of users is not that of proxies"
    setting.authorities = proxies
    assert await setting.status(**credentials) == 200
    await setting.clock.sleep(61)
    assert await setting.status(**credentials) == 401
    credentials["certificate"] = certificate("proxy")
    assert await setting.status(**credentials) == 200
    setting.authorities = Authorities(proxies=b"another CA")
    assert await setting.status(**credentials) == 401


@pytest.mark.parametrize("trusted", [Authorities(), Authorities(proxies=CA)])
async def test_without_a_ca_of_users_no_certificate_names_one(trusted):
    setting = Setting()
    setting.authorities = trusted
    for verified_by in (Authorities(), Authorities(proxies=CA), USER):
        masters = certificate("bob", ["system:masters"])
        assert await setting.status(certificate=masters, verified_by=verified_by) == 401


async def test_of_several_common_names_the_last_counts():
    setting = Setting()
    setting.server.reviews.denied_users.add("bob")
    several = certificate("ada")
    several["subject"] += ((("commonName", "bob"),),)
    assert await setting.status(certificate=several, verified_by=USER) == 403


class Broken:
    """An API server that answers every review with the same."""

    def __init__(self, status, body=b"{}"):
        self.status, self.body = status, body
        self.hold = None

    async def request(self, method, path, body=None, **options):
        if self.hold is not None:
            await self.hold.wait()
        return Response(self.status, {}, self.body)


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b"{}"), (403, b"{}"), (404, b"{}"), (201, b"{}"), (201, b"nonsense"), (201, b"[]")],
)
async def test_whatever_fails_nothing_is_shown(status, body, caplog):
    setting = Setting(transport=Broken(status, body))
    for _ in range(3):
        assert await setting.status(authorization="Bearer ada") == 401
        assert await setting.status(certificate=certificate(), verified_by=USER) == 500
    told = [record.message for record in caplog.records]
    assert told == ["cannot authenticate a request", "cannot authorize a request"]
    assert await setting.status("/healthz") == 200


async def test_review_that_fails_once_is_repeated():
    flaky = Broken(500)

    class Recovering(InProcessTransport):
        tried = False

        async def request(self, method, path, body=None, **options):
            if not self.tried:
                self.tried = True
                return await flaky.request(method, path, body)
            return await super().request(method, path, body, **options)

    clock = VirtualClock()
    transport = Recovering(ApiServer(clock))
    reviews = AccessReviews(transport, transport, clock)
    assert await reviews.user_of("ada") == User("ada", ("system:authenticated",))


async def test_reviews_in_progress_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "MAX_REVIEWS", 2)
    slow = Broken(201, b'{"status": {"authenticated": true, "user": {"username": "a"}}}')
    slow.hold = anyio.Event()
    setting = Setting(transport=slow)
    found = []

    async def ask(number):
        found.append(await setting.status(authorization=f"Bearer t{number}"))

    async with anyio.create_task_group() as tasks:
        for number in range(2):
            tasks.start_soon(ask, number)
        await anyio.lowlevel.checkpoint()
        assert await setting.status(authorization="Bearer t9") == 429
        assert await setting.status("/healthz") == 200
        slow.hold.set()
    assert found == [403, 403]


async def test_long_paths_are_refused_before_anything_is_reviewed():
    setting = Setting()
    assert await setting.status("/" + "x" * 2000, authorization="Bearer ada") == 414
    assert not setting.server.requests


async def test_cache_is_bounded():
    clock = VirtualClock()
    cache: ExpiringCache[int] = ExpiringCache(clock, limit=2)
    for number in range(3):
        cache.put(number, number, 10)
    assert [cache.get(number) for number in range(3)] == [None, 1, 2]
    cache.put(1, 7, 10)
    cache.put(5, 5, 0)
    assert (cache.get(1), cache.get(2), cache.get(5)) == (7, 2, None)
    await clock.sleep(10)
    assert cache.get(1) is None


async def test_tokens_are_not_kept():
    setting = Setting()
    await setting.status(authorization="Bearer a-long-secret")
    (key,) = setting.reviews._users._entries
    assert isinstance(key, bytes)
    assert b"a-long-secret" not in key


def test_a_connection_without_tls_carries_no_certificate():
    assert credentials_of("Bearer x", None) == Credentials("Bearer x")


async def test_failure_of_a_review_names_path_and_cause():
    reviews = Setting(transport=Broken(403)).reviews
    with pytest.raises(ReviewFailed, match=r"POST /apis/authentication.*tokenreviews: .*403"):
        await reviews.user_of("x")
