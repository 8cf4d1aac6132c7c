"""Who may read what: delegated authentication and authorization of every request.

A request is allowed if it reads a path that is always allowed, or if a SubjectAccessReview allows
it to the user whom the client certificate (signed by the cluster's CA) or the bearer token (by a
TokenReview) names.
Whatever fails on the way, the answer is no.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ksched.clock import Clock
from ksched.web.access_reviews import (
    AUTHENTICATED,
    MASTERS,
    AccessReviews,
    ReviewFailed,
    TooManyReviews,
    User,
)
from ksched.web.api_failures import failure_status
from ksched.web.server_tls import ServerContext

log = logging.getLogger(__name__)

_WARN_SECONDS: Final = 60.0
_MAX_PATH: Final = 1024
_READING: Final = ("GET", "HEAD")


class Credentials(NamedTuple):
    """What a connection and the headers of a request carry."""

    authorization: str = ""
    certificate: Mapping[str, Any] | None = None
    """As ``ssl`` decodes it; the handshake has verified it."""
    verified_by: bytes = b""
    """The CA of that handshake."""


class Refusal(NamedTuple):
    """A response instead of the requested one."""

    status: int
    body: bytes


class Access:
    """Decides about requests. ``client_ca`` gives the CA that is trusted now."""

    def __init__(
        self,
        reviews: AccessReviews,
        clock: Clock,
        *,
        always_allow_paths: Sequence[str],
        client_ca: Callable[[], bytes],
    ) -> None:
        self._reviews = reviews
        self._clock = clock
        self._allowed = frozenset(path for path in always_allow_paths if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in always_allow_paths if path.endswith("*"))
        self._client_ca = client_ca
        self._warned: dict[str, float] = {}

    async def refusal(self, method: str, path: str, credentials: Credentials) -> Refusal | None:
        """Return why a request is refused, or None if it is allowed."""
        is_open = path in self._allowed or path.startswith(self._prefixes)
        if is_open and method in _READING:
            return None
        if len(path) > _MAX_PATH:
            return _status(414, "RequestURITooLong", "path too long")
        try:
            user = await self._user(credentials)
            if user is None:
                return _status(401, "Unauthorized", "Unauthorized")
            if MASTERS in user.groups:
                return None
            verdict = await self._reviews.verdict(user, method.lower(), path)
        except TooManyReviews:
            return _status(429, "TooManyRequests", "too many requests to authorize, try again")
        except ReviewFailed as error:
            self._warn("cannot authorize a request", str(error))
            return _status(500, "InternalError", "Internal Server Error: authorization failed")
        if verdict.is_allowed:
            return None
        what = f'User "{user.name}" cannot {method.lower()} path "{path}"'
        why = f": {verdict.reason}" if verdict.reason else ""
        return _status(403, "Forbidden", f"forbidden: {what}{why}")

    async def _user(self, credentials: Credentials) -> User | None:
        """Return the user of the certificate, else of the token, or None."""
        user = self._certified(credentials)
        if user is not None:
            return user
        scheme, _, token = credentials.authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or " " in token:
            return None
        try:
            return await self._reviews.user_of(token)
        except ReviewFailed as error:
            self._warn("cannot authenticate a request", str(error))
            return None

    def _certified(self, credentials: Credentials) -> User | None:
        certificate = credentials.certificate
        # A connection may be older than the present CA, and outlive the certificate.
        if not certificate or credentials.verified_by != self._client_ca():
            return None
        if self._clock.wall() > ssl.cert_time_to_seconds(certificate["notAfter"]):
            return None
        subject = [pair for part in certificate.get("subject", ()) for pair in part]
        name = next((value for field, value in subject if field == "commonName"), "")
        if not name:
            return None
        groups = [value for field, value in subject if field == "organizationName"]
        return User(name, (*groups, AUTHENTICATED))

    def _warn(self, what: str, why: str) -> None:
        """Log once a minute: anybody can cause this."""
        now = self._clock.now()
        if now >= self._warned.get(what, now):
            log.warning(what, extra={"err": why})
            self._warned[what] = now + _WARN_SECONDS


def credentials_of(authorization: str, ssl_object: ssl.SSLObject | None) -> Credentials:
    """Collect what a request carries; ``ssl_object`` is None without TLS."""
    if ssl_object is None:
        return Credentials(authorization)
    context = ssl_object.context
    verified_by = context.client_ca if isinstance(context, ServerContext) else b""
    # Without a CA nothing was verified, and nothing is decoded.
    return Credentials(authorization, ssl_object.getpeercert() or None, verified_by)


def _status(code: int, reason: str, message: str) -> Refusal:
    return Refusal(code, msgspec.json.encode(failure_status(code, reason, message)) + b"\n")
