"""The shadow: follows a cluster and judges every decision of its scheduler.

Watched changes are held back for ``DELAY_SECONDS``, so that they can be put in order and that the
binds just after a decision are known. One loop applies them to the copy of the cluster and, when
one shows a decision, compares it first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, Generic

import anyio
from msgspec.structs import replace

from ksched.api.decoding import decoder_of
from ksched.api.objects import Node, Pod
from ksched.api.watched_kinds import WatchedKind, watched_kind
from ksched.cache.recently_used import RecentlyUsed
from ksched.client.rest import EVERYTHING, ApiClient
from ksched.client.retry import REPEATABLE
from ksched.client.watch_store import T
from ksched.clock import Clock
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import NotFound
from ksched.explain.cluster_copy import NOT_TERMINAL, ClusterCopy
from ksched.framework.runtime.registry import Registry
from ksched.metrics import Metrics
from ksched.redaction import without_credentials
from ksched.scheduling.sweeping import SWEEP_SECONDS, Sweeper
from ksched.scheduling.watches import Watches
from ksched.shadow.changes import Change, ChangeStream, Replay
from ksched.shadow.comparing import Comparer, Moment, percentages
from ksched.shadow.live_decisions import LiveDecision, LiveDecisions
from ksched.shadow.neighbours import LAG_SECONDS, QueueOrder
from ksched.shadow.report import Report, Summary
from ksched.shadow.variants import with_variants
from ksched.unexpected_errors import UnexpectedErrors

DELAY_SECONDS: Final = LAG_SECONDS
_POLL_SECONDS: Final = 0.1
_ORDERS_KEPT: Final = 20_000
IN_A_LIST: Final = "seen in a list: the watch was interrupted"
BEHIND: Final = "the comparison fell behind"
EXTENDERS: Final = "extenders take part, and are not called"
FAILED: Final = "an unexpected error, which is in the log"
GROUPS: Final = "pods of groups are decided together"


class Feed(Generic[T]):
    """Turns what a watch of one kind reports into changes."""

    def __init__(
        self, kind: WatchedKind[T], now: Callable[[], float], push: Callable[[Change], None]
    ) -> None:
        self._kind, self._now, self._push = kind, now, push
        self._version = 0
        self._is_listing = False

    def begin_list(self) -> Callable[[], None]:
        self._is_listing = True
        return self._end_list

    def _end_list(self) -> None:
        self._is_listing = False

    def synced(self) -> None:
        """Nothing to do: the shadow waits for all kinds."""

    def added(self, obj: T) -> None:
        self._changed(None, obj)

    def modified(self, old: T, new: T) -> None:
        self._changed(old, new)

    def deleted(self, obj: T) -> None:
        # The version of the deletion is not known; it is the latest of this kind.
        self._changed(obj, None)

    def _changed(self, old: T | None, new: T | None) -> None:
        version = self._version
        if new is not None and new.metadata.resource_version.isdecimal():
            version = int(new.metadata.resource_version)
        self._version = max(self._version, version)
        self._push(Change(self._kind, old, new, version, self._now(), self._is_listing))


class Shadow:
    """Compares a live scheduler with a configuration; ``report`` has what was found.

    ``live_configuration`` is that of the live scheduler, if it is known: then what differs by
    configuration is known too, and not guessed.
    """

    def __init__(
        self,
        client: ApiClient,
        configuration: SchedulerConfiguration,
        clock: Clock,
        *,
        live_configuration: SchedulerConfiguration | None = None,
        registry: Registry | None = None,
    ) -> None:
        names = [one.scheduler_name for one in configuration.profiles]
        limits = percentages(live_configuration or configuration)
        with_others, variants = with_variants(configuration, live_configuration)
        self._clock = clock
        self.copy = ClusterCopy(client, with_others, clock, registry=registry)
        self.report = Report()
        self._replay = Replay(self.copy)
        self._stream = ChangeStream(DELAY_SECONDS)
        self._decisions = LiveDecisions()
        self._comparers = {
            name: Comparer(
                self.copy, self._replay, self.report, name, variants[name], limits.get(name, 0)
            )
            for name in names
        }
        for extender in configuration.extenders:
            name = without_credentials(extender.url_prefix)
            self.report.notes.append(f"extender {name} is not called")
        self._has_extenders = bool(configuration.extenders)
        self._orders: RecentlyUsed[str, QueueOrder] = RecentlyUsed()
        self._arrivals = 0
        self._listed = asyncio.Event()
        self._unexpected_errors = UnexpectedErrors(Metrics())
        self._sweeper = Sweeper(
            cache=self.copy.cache,
            cycle=self.copy.cycle,
            profiles=self.copy.profiles.values(),
            clock=clock,
        )
        self._swept_at = clock.now()
        self._watches = self._make_watches(client)

    @property
    def held(self) -> int:
        """Changes that were seen and are not applied yet."""
        return len(self._stream)

    @property
    def is_following(self) -> bool:
        """Whether everything was listed, so that decisions are judged from now on."""
        return self._listed.is_set()

    async def wait_following(self) -> None:
        await self._listed.wait()

    def _make_watches(self, client: ApiClient) -> Watches:
        watches = Watches(
            client=client,
            clock=self._clock,
            rng=random.Random(),
            unexpected_errors=self._unexpected_errors,
            on_history_lost=lambda: self.report.notes.append(
                "the API server lost its history, everything was listed again"
            ),
        )
        self.copy.listers.complete()
        for kind in self._kinds():
            feed: Feed[Any] = Feed(kind, self._clock.now, self._seen)
            watches.add(
                kind.resource,
                decoder_of(kind),
                feed,
                NOT_TERMINAL if kind.struct is Pod else EVERYTHING,
                feed.begin_list,
                may_be_absent=not kind.must_be_served,
            )
        return watches

    def _kinds(self) -> list[WatchedKind[Any]]:
        return [watched_kind(Node), *self.copy.listers.required(), watched_kind(Pod)]

    async def check_access(self) -> None:
        """List one object of every kind; raises ``ApiError`` if that is not possible."""
        for kind in self._kinds():
            try:
                await self.copy.client.list_page(kind.resource, limit=1, retry=REPEATABLE)
            except NotFound:
                if kind.must_be_served:
                    raise

    def summary(self) -> Summary:
        """What was found so far."""
        found = self.report.summary()
        return replace(found, notes=[*found.notes, *self.copy.invalid])

    async def run(self, decisions: int = 0) -> None:
        """Follow the cluster until cancelled, or until so many decisions were judged."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watches.run, name="watches")
            await self._watches.wait_synced()
            self._listed.set()
            while not decisions or self.report.decisions < decisions:
                self._sweep()
                change = self._stream.pop(self._clock.now())
                if change is None:
                    await self._clock.sleep(_POLL_SECONDS)
                else:
                    await self._step(change)
            tasks.cancel_scope.cancel()

    def _sweep(self) -> None:
        now = self._clock.now()
        if now - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = now
            self._sweeper.sweep()

    def _seen(self, change: Change) -> None:
        if self.is_following:
            self._stream.push(change)
        else:
            self._replay.put(change.kind, change.old, change.new)

    async def _step(self, change: Change) -> None:
        live = self._decisions.in_change(change)
        if live is not None:
            if live.pod.spec.scheduler_name in self._comparers:
                await self._judge(live, change)
            if not live.node:
                # Its place in the queue is another one from now on.
                self._orders.pop(live.pod.metadata.uid)
            await asyncio.sleep(0)
        self._replay.apply(change)
        if change.kind.struct is Pod and change.old is None and not change.new.spec.node_name:
            self._arrivals += 1
            order = (-(change.new.spec.priority or 0), self._arrivals)
            self._orders.put(change.new.metadata.uid, order, _ORDERS_KEPT)

    async def _judge(self, live: LiveDecision, change: Change) -> None:
        problem = self._problem(change)
        if problem:
            self.report.skip(problem)
            return
        comparer = self._comparers[live.pod.spec.scheduler_name]
        moment = Moment(change.at, self._replay.history, self._stream.ahead(), self._order_of)
        try:
            await comparer.compare(live, moment)
        except Exception as failed:  # noqa: BLE001 - reported
            self._unexpected_errors.report("compare", live.pod.metadata.key, failed)
            self.report.skip(FAILED)

    def _problem(self, change: Change) -> str:
        """Why a decision cannot be judged; mostly nothing."""
        if change.is_late:
            return IN_A_LIST
        if self._stream.is_overflowing:
            return BEHIND
        if self._has_extenders:
            return EXTENDERS
        if self.copy.groups.is_on and self.copy.groups.of(change.old.metadata.uid) is not None:
            return GROUPS
        return ""

    def _order_of(self, pod: Pod) -> QueueOrder | None:
        return self._orders.get(pod.metadata.uid)
