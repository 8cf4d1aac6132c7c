"""Who may read what: delegated authentication and authorization of every request.

A request is allowed if it reads a path that is always allowed, or if a SubjectAccessReview allows
it to the user: whom a proxy names in headers (its certificate signed by the CA of proxies), or else
the client certificate (signed by the CA of users), or else the bearer token (by a TokenReview).
Whatever fails on the way, the answer is no.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ksched.clock import Clock
from ksched.configuration.front_proxy import FrontProxy
from ksched.web.access_reviews import (
    AUTHENTICATED,
    MASTERS,
    AccessReviews,
    ReviewFailed,
    TooManyReviews,
    User,
)
from ksched.web.api_failures import failure_status
from ksched.web.front_proxy import Headers, proxied_user
from ksched.web.server_context import Authorities, ServerContext

log = logging.getLogger(__name__)

_WARN_SECONDS: Final = 60.0
_MAX_PATH: Final = 1024
_READING: Final = ("GET", "HEAD")


Subject = Sequence[tuple[str, str]]
"""Fields and values of a certificate's subject."""


class Credentials(NamedTuple):
    """What a connection and the headers of a request carry."""

    authorization: str = ""
    certificate: Mapping[str, Any] | None = None
    """As ``ssl`` decodes it; the handshake has verified it."""
    verified_by: Authorities = Authorities()
    """The CAs that it has, of those of the handshake."""
    headers: Headers = ()
    """All that the request has: only a proxy's are believed."""


class Refusal(NamedTuple):
    """A response instead of the requested one."""

    status: int
    body: bytes


class Access:
    """Decides about requests.

    ``authorities`` gives the CAs that are trusted now, ``front_proxy`` what a proxy may do.
    """

    def __init__(
        self,
        reviews: AccessReviews,
        clock: Clock,
        *,
        always_allow_paths: Sequence[str],
        authorities: Callable[[], Authorities],
        front_proxy: Callable[[], FrontProxy],
    ) -> None:
        self._reviews = reviews
        self._clock = clock
        self._allowed = frozenset(path for path in always_allow_paths if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in always_allow_paths if path.endswith("*"))
        self._authorities, self._front_proxy = authorities, front_proxy
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
        """Return the user that a proxy names, else of the certificate, else of the token, or None.

        kube-scheduler: DelegatingAuthenticatorConfig.New.
        """
        user = self._proxied(credentials) or self._certified(credentials)
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

    def _proxied(self, credentials: Credentials) -> User | None:
        verified_by = credentials.verified_by.proxies
        # A connection may be older than the present CA.
        if not verified_by or verified_by != self._authorities().proxies:
            return None
        subject = self._subject(credentials)
        if subject is None:
            return None
        return proxied_user(self._front_proxy(), _name(subject), credentials.headers)

    def _certified(self, credentials: Credentials) -> User | None:
        verified_by = credentials.verified_by.users
        if not verified_by or verified_by != self._authorities().users:
            return None
        subject = self._subject(credentials)
        if not subject or not _name(subject):
            return None
        groups = [value for field, value in subject if field == "organizationName"]
        return User(_name(subject), (*groups, AUTHENTICATED))

    def _subject(self, credentials: Credentials) -> Subject | None:
        """Return the subject of a certificate that has not expired, as a connection outlives it."""
        certificate = credentials.certificate
        if not certificate:
            return None
        if self._clock.wall() > ssl.cert_time_to_seconds(certificate["notAfter"]):
            return None
        return [pair for part in certificate.get("subject", ()) for pair in part]

    def _warn(self, what: str, why: str) -> None:
        """Log once a minute: anybody can cause this."""
        now = self._clock.now()
        if now >= self._warned.get(what, now):
            log.warning(what, extra={"err": why})
            self._warned[what] = now + _WARN_SECONDS


def credentials_of(
    authorization: str, ssl_object: ssl.SSLObject | None, headers: Headers = ()
) -> Credentials:
    """Collect what a request carries; ``ssl_object`` is None without TLS."""
    if ssl_object is None:
        return Credentials(authorization)
    context = ssl_object.context
    if not isinstance(context, ServerContext):
        return Credentials(authorization)
    # Without a CA nothing was verified, and nothing is decoded.
    certificate = ssl_object.getpeercert() or None
    return Credentials(authorization, certificate, context.verified_by(ssl_object), headers)


def _name(subject: Subject) -> str:
    """Return the common name; of several the last counts, as for kube-scheduler."""
    return next((value for field, value in reversed(subject) if field == "commonName"), "")


def _status(code: int, reason: str, message: str) -> Refusal:
    return Refusal(code, msgspec.json.encode(failure_status(code, reason, message)) + b"\n")
