"""The user whom a proxy names in headers.

The caller has verified the certificate of the proxy: anybody else may send the same headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import unquote

from ksched.configuration.front_proxy import FrontProxy
from ksched.web.access_reviews import AUTHENTICATED, User

Headers = Sequence[tuple[str, str]]
"""In the order in which they were sent, repeated ones too."""

ANONYMOUS: Final = "system:anonymous"
UNAUTHENTICATED: Final = "system:unauthenticated"

_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def proxied_user(proxy: FrontProxy, common_name: str, headers: Headers) -> User | None:
    """Return the user named by a proxy, or None if it may not name one or does not.

    kube-scheduler: requestHeaderAuthRequestHandler.AuthenticateRequest and verifySubject.
    """
    if proxy.allowed_names and common_name not in proxy.allowed_names:
        return None
    sent = [(name.lower(), _decodable(value)) for name, value in headers]
    name = _first(sent, proxy.username_headers)
    if not name:
        return None
    groups = tuple(
        value for wanted in _lower(proxy.group_headers) for value in _values(sent, wanted) if value
    )
    if name != ANONYMOUS and not {AUTHENTICATED, UNAUTHENTICATED}.intersection(groups):
        groups += (AUTHENTICATED,)
    uid = _first(sent, proxy.uid_headers)
    return User(name, groups, uid, _extra(sent, proxy.extra_prefixes))


def _first(headers: Headers, names: Iterable[str]) -> str:
    """Return the value of the first header that has one; of a repeated header the first counts."""
    found = (next(iter(_values(headers, name)), "") for name in _lower(names))
    return next(filter(None, found), "")


def _values(headers: Headers, wanted: str) -> list[str]:
    return [value for name, value in headers if name == wanted]


def _extra(headers: Headers, prefixes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for prefix in _lower(prefixes):
        for name, value in headers:
            if name.startswith(prefix):
                key = _unescaped(name.removeprefix(prefix))
                extra[key] = (*extra.get(key, ()), value)
    return extra


def _unescaped(key: str) -> str:
    """kube-scheduler: unescapeExtraKey."""
    return key if _BAD_ESCAPE.search(key) else unquote(key)


def _lower(names: Iterable[str]) -> list[str]:
    # An empty prefix would turn every header into a fact about the user.
    return [name.strip().lower() for name in names if name.strip()]


def _decodable(value: str) -> str:
    """Replace what is not UTF-8, which no review could carry."""
    return value.encode(errors="surrogateescape").decode(errors="replace")
