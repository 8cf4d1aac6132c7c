"""Who a token belongs to and what a user may read, as the API server decides it."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Hashable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from ksched.client.rest import ApiClient
from ksched.client.retry import RetryPolicy
from ksched.clock import Clock
from ksched.errors import ApiError, KschedError
from ksched.transport import Transport

T = TypeVar("T")

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
AUTHENTICATED: Final = "system:authenticated"
MASTERS: Final = "system:masters"

REVIEW_SECONDS: Final = 5.0
MAX_REVIEWS: Final = 16
"""In progress at a time: more would keep connections busy that probes need."""
_CACHED: Final = 1024
# A review changes nothing and may be repeated.
_RETRY: Final = RetryPolicy(repeatable=True, tries=2, deadline=REVIEW_SECONDS)


class User(NamedTuple):
    """A user of the API server."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}


class Verdict(NamedTuple):
    """Whether a request is allowed, and why."""

    is_allowed: bool
    reason: str = ""


class ReviewFailed(KschedError):
    """The API server gave no verdict."""


class TooManyReviews(KschedError):
    """``MAX_REVIEWS`` are in progress."""


class ExpiringCache(Generic[T]):
    """At most ``limit`` values; the oldest is dropped for a new one."""

    def __init__(self, clock: Clock, limit: int = _CACHED) -> None:
        self._clock = clock
        self._limit = limit
        self._entries: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable) -> T | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        expires_at, value = entry
        if self._clock.now() >= expires_at:
            del self._entries[key]
            return None
        return value

    def put(self, key: Hashable, value: T, seconds: float) -> None:
        if seconds <= 0:
            return
        self._entries.pop(key, None)
        if len(self._entries) >= self._limit:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = self._clock.now() + seconds, value


class _TokenUser(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _TokenUser | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct, rename="camel"):
    allowed: bool = False
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


class _Known(NamedTuple):
    user: User | None


class AccessReviews:
    """Cached TokenReviews and SubjectAccessReviews."""

    def __init__(
        self,
        authentication: Transport,
        authorization: Transport,
        clock: Clock,
        *,
        token_seconds: float = 10.0,
        allowed_seconds: float = 10.0,
        denied_seconds: float = 10.0,
    ) -> None:
        self._authentication = ApiClient(authentication, clock)
        self._authorization = ApiClient(authorization, clock)
        self._token_seconds = token_seconds
        self._allowed_seconds, self._denied_seconds = allowed_seconds, denied_seconds
        self._users: ExpiringCache[_Known] = ExpiringCache(clock)
        self._verdicts: ExpiringCache[Verdict] = ExpiringCache(clock)
        # Tokens are not kept, only what recognizes them.
        self._secret = os.urandom(32)
        self._in_progress = 0

    async def user_of(self, token: str) -> User | None:
        """Return the user of a token, or None if it is not valid."""
        key = hmac.digest(self._secret, token.encode(), hashlib.sha256)
        known = self._users.get(key)
        if known is None:
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token},
            }
            review = await self._review(self._authentication, TOKEN_REVIEWS, body, _TokenReview)
            known = _Known(_user(review.status))
            self._users.put(key, known, self._token_seconds)
        return known.user

    async def verdict(self, user: User, verb: str, path: str) -> Verdict:
        """Return whether that user may use that verb on that path."""
        extra = tuple(sorted(user.extra.items()))
        key = (user.name, user.uid, user.groups, extra, verb, path)
        verdict = self._verdicts.get(key)
        if verdict is None:
            spec = {
                "user": user.name,
                "groups": user.groups,
                "uid": user.uid,
                "extra": user.extra,
                "nonResourceAttributes": {"path": path, "verb": verb},
            }
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": spec,
            }
            review = await self._review(self._authorization, ACCESS_REVIEWS, body, _AccessReview)
            status = review.status
            is_allowed = status.allowed and not status.denied
            verdict = Verdict(is_allowed, status.reason)
            seconds = self._allowed_seconds if is_allowed else self._denied_seconds
            self._verdicts.put(key, verdict, seconds)
        return verdict

    async def _review(self, client: ApiClient, path: str, body: Any, shape: type[T]) -> T:
        if self._in_progress >= MAX_REVIEWS:
            raise TooManyReviews(f"{MAX_REVIEWS} reviews are in progress")
        self._in_progress += 1
        try:
            answer = await client.request(
                "POST", path, msgspec.json.encode(body), timeout=REVIEW_SECONDS, retry=_RETRY
            )
            return msgspec.json.decode(answer, type=shape)
        except (ApiError, msgspec.DecodeError) as error:
            raise ReviewFailed(f"POST {path}: {error}") from error
        finally:
            self._in_progress -= 1


def _user(status: _TokenStatus) -> User | None:
    if not status.authenticated or status.user is None:
        return None
    found = status.user
    groups = found.groups or ()
    if AUTHENTICATED not in groups:
        groups += (AUTHENTICATED,)
    return User(found.username, groups, found.uid, found.extra or {})
