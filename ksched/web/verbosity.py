"""``PUT /debug/flags/v``: how much is logged, changed while the process runs.

kube-scheduler: StringFlagPutHandler and GlogSetter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

VERBOSITY: Final = "/debug/flags/v"

_MAX_BYTES: Final = 64
_NUMBER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT32: Final = range(-(2**31), 2**31)


class VerbosityFlag:
    """Answers requests; a number that is sent is passed to ``set_verbosity``."""

    def __init__(self, set_verbosity: Callable[[int], None]) -> None:
        self._set_verbosity = set_verbosity

    async def answer(self, request: web.Request) -> web.Response:
        if request.method != "PUT":
            return _text(406, "unsupported http method")
        try:
            text = await _body(request)
        except (ConnectionError, HttpProcessingError, web.RequestPayloadError, ValueError) as error:
            return _text(400, f"error reading request body: {error}")
        try:
            verbosity = parse_verbosity(text)
        except ValueError as error:
            return _text(400, f"failed set klog.logging.verbosity {text}: {error}")
        self._set_verbosity(verbosity)
        return _text(200, f"successfully set klog.logging.verbosity to {text}")


def parse_verbosity(text: str) -> int:
    """Read a number as Go does; raises ``ValueError`` with Go's words."""
    call = f"strconv.ParseInt: parsing {json.dumps(text)}"
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{call}: invalid syntax")
    verbosity = int(text)
    if verbosity not in _INT32:
        raise ValueError(f"{call}: value out of range")
    return verbosity


async def _body(request: web.Request) -> str:
    body = b""
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > _MAX_BYTES:
            raise ValueError(f"more than {_MAX_BYTES} bytes")
    return body.decode(errors="replace")


def _text(status: int, text: str) -> web.Response:
    headers = {"X-Content-Type-Options": "nosniff"}
    body = f"{text}\n".encode()
    return web.Response(body=body, status=status, content_type="text/plain", headers=headers)
