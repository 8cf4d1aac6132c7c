"""All watches of one scheduler: a reflector per kind, with one shared API server history."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection
from typing import Any, Generic

import anyio
import msgspec

from ksched.api.resources import ApiResource
from ksched.client.catching_up import catch_up
from ksched.client.reflector import OnList, Reflector
from ksched.client.rest import EVERYTHING, ApiClient, Selection
from ksched.client.watch_health import WatchHealth
from ksched.client.watch_store import Handler, T
from ksched.clock import Clock
from ksched.steps import Steps
from ksched.unexpected_errors import UnexpectedErrors

log = logging.getLogger(__name__)


class OneByOne(Generic[T]):
    """Forwards changes; an exception while handling one object does not affect others."""

    def __init__(self, kind: str, handler: Handler[T], unexpected_errors: UnexpectedErrors) -> None:
        self._activity = f"watch {kind}"
        self.handler = handler
        self._unexpected_errors = unexpected_errors

    def synced(self) -> None:
        self.handler.synced()

    def added(self, obj: T) -> None:
        try:
            self.handler.added(obj)
        except Exception as problem:  # noqa: BLE001 - reported
            self._unexpected_errors.report(self._activity, obj.metadata.key, problem)

    def modified(self, old: T, new: T) -> None:
        try:
            self.handler.modified(old, new)
        except Exception as problem:  # noqa: BLE001 - reported
            self._unexpected_errors.report(self._activity, new.metadata.key, problem)

    def deleted(self, obj: T) -> None:
        try:
            self.handler.deleted(obj)
        except Exception as problem:  # noqa: BLE001 - reported
            self._unexpected_errors.report(self._activity, obj.metadata.key, problem)


class Watches:
    """Lists and watches every registered kind.

    ``on_history_lost`` is called before everything is relisted because the API server lost its data
    or was restored from a backup: its earlier responses may no longer hold.
    """

    def __init__(
        self,
        *,
        client: ApiClient,
        clock: Clock,
        rng: random.Random,
        unexpected_errors: UnexpectedErrors,
        on_history_lost: Callable[[], None],
    ) -> None:
        self._client, self._clock, self._rng = client, clock, rng
        self._unexpected_errors = unexpected_errors
        self._on_history_lost = on_history_lost
        self._reflectors: list[Reflector[Any]] = []
        self._handlers: list[tuple[ApiResource, OneByOne[Any]]] = []
        self.health = WatchHealth(self._reflectors, clock)

    def add(
        self,
        resource: ApiResource,
        decode: Callable[[msgspec.Raw], T],
        handler: Handler[T],
        selection: Selection = EVERYTHING,
        on_list: OnList | None = None,
        *,
        decode_in_steps: Callable[[msgspec.Raw], Steps[T]] | None = None,
        may_be_absent: bool = False,
    ) -> Reflector[T]:
        """Register a kind, watched once ``run`` is called.

        Large objects are decoded by ``decode_in_steps``.
        A kind that ``may_be_absent`` has no objects while the API server does not serve it.
        """
        one_by_one = OneByOne(resource.kind, handler, self._unexpected_errors)
        self._handlers.append((resource, one_by_one))
        reflector = Reflector(
            self._client,
            resource,
            decode,
            one_by_one,
            self._clock,
            selection=selection,
            rng=self._rng,
            on_list=on_list,
            decode_in_steps=decode_in_steps,
            may_be_absent=may_be_absent,
            on_history_lost=self.relist,
        )
        self._reflectors.append(reflector)
        return reflector

    def tap(self, between: Callable[[ApiResource, Handler[Any]], Handler[Any]]) -> None:
        """Replace the handler of every registered kind by one that passes on to it."""
        for resource, one_by_one in self._handlers:
            one_by_one.handler = between(resource, one_by_one.handler)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.health.run, name="watch health")
            for reflector in self._reflectors:
                tasks.start_soon(reflector.run, name=f"watch {reflector.resource}")

    @property
    def is_synced(self) -> bool:
        """Whether every kind has delivered a complete list."""
        return all(reflector.synced for reflector in self._reflectors)

    async def wait_synced(self) -> None:
        for reflector in self._reflectors:
            await reflector.wait_synced()

    async def catch_up(self, resources: Collection[ApiResource]) -> bool:
        """Wait until what was stored before the call has been delivered, of some kinds.

        Returns whether it was.
        """
        outdated: list[ApiResource] = []

        async def follow(reflector: Reflector[Any]) -> None:
            if not await catch_up(reflector, self._client, self._clock):
                outdated.append(reflector.resource)

        async with anyio.create_task_group() as tasks:
            for reflector in self._reflectors:
                if reflector.resource in resources:
                    tasks.start_soon(follow, reflector)
        return not outdated

    def relist(self) -> None:
        """Relist everything: the API server's history differs from the one that was watched."""
        log.warning("API server's history differs from the one watched, relisting everything")
        self._on_history_lost()
        for reflector in self._reflectors:
            reflector.relist()
