"""Checks that the server still has the history that was watched.

A server restored from a backup accepts a watch from a version it has not reached yet, waits for it
silently, and continues from there as if nothing had happened: versions are used twice. So before a
watch is reopened, the state at the known version is compared if it is small, and otherwise the
latest known changes: a small request or two every few minutes.
"""

from __future__ import annotations

from typing import Any, Final

from ksched.api.decoding import ListPage
from ksched.api.resources import ApiResource
from ksched.client.rest import ApiClient, Selection
from ksched.client.watch_store import Fact, Store, identify, is_older
from ksched.errors import ApiError, Gone

FEW: Final = 100
"""Up to so many objects are compared individually."""

# Response codes of a server that cannot list at an old version.
_CANNOT_ANSWER: Final = frozenset({400, 404, 405, 415, 422})
# Messages about a version that the server has not reached; the second is etcd's own.
_FUTURE: Final = ("Too large resource version", "future revision")


class HistoryLost(Gone):
    """The server lost its data, or has other data than was watched."""


def is_history_lost(error: Exception) -> bool:
    """Whether an error means that the server's history is not the one that was watched."""
    return isinstance(error, HistoryLost) or (
        isinstance(error, ApiError) and any(words in str(error) for words in _FUTURE)
    )


def went_back(resource: ApiResource, known: str, version: str) -> HistoryLost:
    """Versions only ever grow, unless the server lost its data or was restored."""
    problem = f"resourceVersion went back from {known} to {version}"
    return HistoryLost(410, "VersionWentBack", f"WATCH {resource.path()}: {problem}")


class History:
    """The history of one kind, as known by a store."""

    def __init__(
        self, client: ApiClient, resource: ApiResource, selection: Selection, store: Store[Any]
    ) -> None:
        self._client, self._resource, self._selection = client, resource, selection
        self._store = store

    async def check(self, version: str) -> None:
        """Raise ``HistoryLost`` if the server's state at the last known version was different.

        A server whose earlier state cannot be read passes.
        """
        try:
            if len(self._store.objects) <= FEW:
                await self._check_state(version)
            else:
                for fact in self._store.evidence(version):
                    await self._check_fact(fact, version)
        except ApiError as error:
            if error.code not in _CANNOT_ANSWER:
                raise

    async def _check_state(self, version: str) -> None:
        page = await self._page_at(version, self._selection, FEW + 1)
        if page is not None and not self._store.holds(page.items):
            raise self._lost(f"state at {version} is not what was watched")

    async def _check_fact(self, fact: Fact, version: str) -> None:
        selection = self._selection.only(fact.namespace, fact.name)
        try:
            page = await self._page_at(fact.at, selection, 1)
        except Gone:
            # Compacted: for the known version this means a new list, for an older one nothing.
            if fact.at == version:
                raise
            return
        if page is not None:
            found = identify(page.items[0]).resource_version if page.items else ""
            if found != fact.version:
                raise self._lost(f"{fact.name} at {fact.at} is not what was watched")

    async def _page_at(self, version: str, selection: Selection, limit: int) -> ListPage | None:
        """Return objects as of a version; ``None`` from a server that only has the present."""
        page = await self._client.list_page(
            self._resource, selection, limit=limit, exactly_at=version
        )
        answered = page.metadata.resource_version
        if is_older(answered, version):
            raise self._lost(f"resourceVersion went back from {version} to {answered}")
        return page if answered == version else None

    def _lost(self, problem: str) -> HistoryLost:
        return HistoryLost(410, "HistoryLost", f"LIST {self._resource.path()}: {problem}")
