"""Whether a copy of the API server's objects is up to date now.

A connection may be dead without a sign of it, and a watch on it silent like one of which nothing
has changed: for minutes, until its idle limit. Whoever is about to rely on the copy asks here.
"""

from __future__ import annotations

from typing import Any, Final

from ksched.client.reflector import YOUNG_SECONDS, Reflector
from ksched.client.rest import PAGE_LIMIT, ApiClient
from ksched.client.watch_store import is_older
from ksched.clock import Clock
from ksched.errors import ApiError

LIVE_SECONDS: Final = 1.0
"""A watch that works has delivered by then what was stored, and in most clusters more."""
_LOOK_SECONDS: Final = 0.02


async def catch_up(reflector: Reflector[Any], client: ApiClient, clock: Clock) -> None:
    """Return when everything that was stored before the call has been delivered.

    All objects are listed again, unless that was done just now; if they are more than a page, only
    if the watch does not show within a second that it goes on.
    """
    began = clock.now()
    if began - reflector.listed_at < YOUNG_SECONDS:
        return
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
        await clock.sleep(_LOOK_SECONDS)


async def _newest_version(reflector: Reflector[Any], client: ApiClient) -> str:
    """The server's, of everything; empty if it does not answer."""
    try:
        return (await client.list_page(reflector.resource, limit=1)).metadata.resource_version
    except ApiError:
        return ""
