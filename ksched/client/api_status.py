"""Failure responses as typed errors, and what these mean for the next request."""

from __future__ import annotations

import html
import re
from email.utils import parsedate_to_datetime

import msgspec

from ksched.api.decoding import ApiStatus, decode_status
from ksched.errors import (
    ApiError,
    Conflict,
    Gone,
    InvalidObject,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from ksched.transport import Response

_MESSAGE_LIMIT = 1000
_TEXT_LIMIT = 200
# Response codes of a server without streaming lists; all others may be transient.
_NO_STREAMING = frozenset({400, 404, 405, 415, 422})
# Part of the message of a server whose etcd is too old, with code 500 and inside the stream.
_NO_PROGRESS = "RequestWatchProgress"


def error_from_response(method: str, path: str, response: Response, wall: float) -> ApiError:
    """Build the error of a failed request; ``wall`` resolves a Retry-After given as a date.

    The body may be a Status, or any text from a proxy or load balancer.
    """
    status = _status(response.body)
    # Another transport may return a plain dictionary, in either case.
    headers = response.headers
    retry_after = _retry_after(headers.get("retry-after") or headers.get("Retry-After", ""), wall)
    if status is None:
        message = _plain_text(response.body)
        return _error(response.status, "", f"{method} {_bare(path)}: {message}", retry_after)
    if retry_after is None and status.details and status.details.retry_after_seconds > 0:
        retry_after = float(status.details.retry_after_seconds)
    message = f"{method} {_bare(path)}: {status.message[:_MESSAGE_LIMIT]}"
    return _error(response.status, status.reason, message, retry_after, status.message)


def error_from_status(method: str, path: str, body: bytes | msgspec.Raw) -> ApiError:
    """Build the error of a watch event of type ERROR."""
    status = _status(body)
    if status is None or not status.code:
        message = f"{method} {_bare(path)}: watch error without a status: {_plain_text(body)}"
        return Unavailable(500, "", message)
    message = f"{method} {_bare(path)}: {status.message[:_MESSAGE_LIMIT]}"
    return _error(status.code, status.reason, message, None)


def _status(body: bytes | msgspec.Raw) -> ApiStatus | None:
    """Return the Status in ``body``, or None if it is something else."""
    try:
        status = decode_status(body)
    except (InvalidObject, UnicodeDecodeError):
        return None
    return status if status.code or status.message else None


def _error(
    code: int, reason: str, message: str, retry_after: float | None, said: str = ""
) -> ApiError:
    kind: type[ApiError] = ApiError
    if code == 404:
        kind = NotFound
    elif code == 409:
        kind = Conflict
    elif code == 410:
        kind = Gone
    elif code == 429:
        kind = TooManyRequests
    elif code >= 500:
        kind = Unavailable
    return kind(code, reason, message, retry_after, said[:_MESSAGE_LIMIT])


def _bare(path: str) -> str:
    return path.partition("?")[0]


def _plain_text(body: bytes | msgspec.Raw) -> str:
    text = bytes(body)[: 20 * _TEXT_LIMIT].decode("utf-8", "replace")
    if "<" in text:
        text = html.unescape(re.sub(r"(?s)<(script|style).*?</\1>|<[^>]*>", " ", text))
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text[:_TEXT_LIMIT] if text else "empty answer"


def _retry_after(value: str, wall: float) -> float | None:
    """Return the delay in seconds, from either form of the Retry-After header."""
    if not value:
        return None
    try:
        return max(float(value), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(value).timestamp() - wall, 0.0)
    except ValueError:
        return None


def is_connection_lost(error: Exception) -> bool:
    """Whether no usable HTTP response arrived: such a failure has the code 0."""
    return isinstance(error, ApiError) and not error.code


def is_never_streaming(error: Exception) -> bool:
    """Whether a server that failed to stream a list will never support that."""
    if isinstance(error, ApiError):
        return error.code in _NO_STREAMING or _NO_PROGRESS in str(error)
    # No further data and no end of the initial events: the server ignored the parameter.
    return isinstance(error, TimeoutError)
