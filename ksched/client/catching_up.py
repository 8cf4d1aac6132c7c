"""Whether a copy of the API server's objects is up to date now.

A connection may be dead without a sign of it, and a watch on it silent like one of which nothing
has changed: for minutes, until its idle limit. Whoever is about to rely on the copy asks here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import anyio

from ksched.client.reflector import YOUNG_SECONDS, Reflector
from ksched.client.rest import PAGE_LIMIT, ApiClient
from ksched.client.watch_store import is_older
from ksched.clock import Clock
from ksched.errors import ApiError

LIVE_SECONDS: Final = 1.0
"""A watch that works has delivered by then what was stored, and in most clusters more."""
SILENT_SECONDS: Final = 30.0
"""How long the server may send nothing before it is no longer waited for: after that, pods that
start late are worse than decisions on old state."""
LONGEST_SECONDS: Final = 300.0
_ANSWER_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.02


async def catch_up(reflector: Reflector[Any], client: ApiClient, clock: Clock) -> bool:
    """Return when everything that was stored before the call has been delivered.

    All objects are listed again, unless that was done just now; if they are more than a page, only
    if the watch does not show within a second that it goes on. A list that takes long is waited
    for as long as more of it comes: the copy is out of date until it is complete. Returns whether
    it is up to date.
    """
    began = clock.now()
    if began - reflector.listed_at < YOUNG_SECONDS:
        return True
    newest, until = "", began
    if len(reflector.objects) > PAGE_LIMIT:
        newest, until = await _newest_version(reflector, client), began + LIVE_SECONDS

    def is_known() -> bool:
        is_delivered = bool(newest) and not is_older(reflector.known_version, newest)
        return is_delivered or reflector.listed_at >= began

    while not is_known() and clock.now() < until:
        await clock.sleep(_LOOK_SECONDS)
    if not is_known():
        reflector.relist()
    while not is_known():
        now = clock.now()
        heard_at = max(began, reflector.state.contact_at or began)
        if now - heard_at >= SILENT_SECONDS or now - began >= LONGEST_SECONDS:
            return False
        await clock.sleep(_LOOK_SECONDS)
    return True


async def _newest_version(reflector: Reflector[Any], client: ApiClient) -> str:
    """The server's, of everything; empty if it does not answer."""
    with suppress(ApiError), anyio.move_on_after(_ANSWER_SECONDS):
        return (await client.list_page(reflector.resource, limit=1)).metadata.resource_version
    return ""
