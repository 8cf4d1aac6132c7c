"""Requests of the simulated controllers and drivers."""

from __future__ import annotations

import msgspec

from ksched.apiserver.served_resources import JsonObject
from ksched.errors import Unavailable
from ksched.transport import JSON, Transport


async def send(
    transport: Transport,
    method: str,
    path: str,
    body: JsonObject | None = None,
    content_type: str = JSON,
) -> JsonObject | None:
    """Send a request and return the object of the answer.

    ``None`` if the request was refused: the object has changed and the watch will deliver it.
    Raises ``Unavailable`` if the request is worth a repetition.
    """
    raw = None if body is None else msgspec.json.encode(body)
    response = await transport.request(method, path, raw, content_type=content_type)
    if response.status == 429 or response.status >= 500:
        raise Unavailable(response.status, "", f"{method} {path} was refused")
    if response.status >= 400:
        return None
    answer: JsonObject = msgspec.json.decode(response.body)
    return answer
