"""PreBind and Unreserve: claims are written, binding conditions awaited, and both undone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from weakref import WeakValueDictionary

from ksched.api.devices import MAX_RESERVATIONS, ResourceClaim
from ksched.devices.claim_store import ClaimStore, NotAssumed
from ksched.errors import ApiError
from ksched.framework import Handle, PluginTasks, PodInfo
from ksched.framework.plugins.dynamic_resources.attempt import Attempt
from ksched.framework.plugins.dynamic_resources.binding_conditions import (
    BindingFailed,
    have_binding_conditions,
    is_ready,
    is_timed_out,
)
from ksched.framework.plugins.dynamic_resources.claim_writer import ClaimWriter, NotWritten

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 5.0
"""The interval of checks of the binding conditions."""
SEEN_SECONDS = 120.0
"""How long the watch may take to deliver a claim created for extended resources."""
SEEN_AGAIN_SECONDS = 1.0
MAX_CONCURRENT_WRITERS = 24
"""Pods whose claims are written concurrently. With more, the first pod of a burst would be bound
only when the claims of all are written; and each takes a connection, and time to open it."""

TURNS_TO_JOIN = 2
"""So many turns of the event loop without another pod that joins a claim end the wait for more."""

SUCCESS, FAILURE, TIMEOUT, ERROR = "success", "failure", "timeout", "error"


class ClaimBinder:
    """Writes the claims of placed pods."""

    def __init__(
        self,
        handle: Handle,
        claims: ClaimStore,
        writer: ClaimWriter,
        binding_timeout_seconds: float,
    ) -> None:
        self._handle = handle
        self._clock = handle.clock
        self._claims = claims
        self._writer = writer
        self._binding_timeout_seconds = binding_timeout_seconds
        self.tasks: PluginTasks | None = None
        """Runs the API calls of Unreserve, which is synchronous."""
        self._releases: dict[tuple[str, str], asyncio.Event] = {}
        """By UIDs of claim and pod, reservations that are being removed."""
        self._writers = asyncio.Semaphore(MAX_CONCURRENT_WRITERS)
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()
        """By UID of a claim that is being written."""

    async def bind(self, pod: PodInfo, node_name: str, attempt: Attempt) -> None:
        """Write all claims of a pod, and wait for their devices; raises ``NotWritten``.

        kube-scheduler: PreBind, bindClaim.
        """
        async with self._writers:
            for position in range(len(attempt.claims)):
                await self._released(pod, attempt, position)
                await self._bind_in_turn(pod, attempt, position)
        if have_binding_conditions(attempt.claims):
            note = f"waiting for binding conditions for device on node {node_name}"
            self._handle.recorder.event(
                pod, "Normal", "BindingConditionsPending", "Scheduling", note
            )
            await self._wait_for_conditions(attempt)

    async def _bind_in_turn(self, pod: PodInfo, attempt: Attempt, position: int) -> None:
        """Write a claim when no other pod does: all but one would get a conflict.

        One write reserves it for all pods that wait for their turn to join it.
        """
        uid = attempt.claims[position].metadata.uid
        turn = self._turns.get(uid)
        if turn is None:
            turn = self._turns[uid] = _Turn()
        if position not in attempt.allocations:
            turn.joining[pod.uid] = pod
        try:
            async with turn.lock:
                self._renew(attempt, position)
                if position in attempt.allocations:
                    await self._bind_claim(pod, attempt, position, turn)
                elif not attempt.claims[position].is_reserved_for(pod.uid):
                    await turn.let_others_join()
                    self._renew(attempt, position)
                    await self._bind_claim(pod, attempt, position, turn)
        except BaseException:
            # A write of another pod may have reserved it: ``undo`` must see that.
            self._renew(attempt, position)
            raise
        finally:
            turn.joining.pop(pod.uid, None)

    async def _bind_claim(self, pod: PodInfo, attempt: Attempt, position: int, turn: _Turn) -> None:
        claim = attempt.claims[position]
        allocation = attempt.allocations.get(position)
        special = attempt.special
        is_special = special is not None and position == len(attempt.claims) - 1
        in_flight = claim.metadata.uid
        try:
            if is_special and special is not None:
                if allocation is None or special.chosen is None:
                    return
                claim = await self._writer.create(pod, claim, special.chosen.spec)
                special.is_stored = True
                attempt.claims[position] = claim
            users = turn.users(pod, claim)
            try:
                claim = await self._writer.bind(users, claim, allocation)
            finally:
                if is_special:
                    await self._see(claim)
            attempt.claims[position] = claim
            if not is_special:
                self._assume(claim)
                for one in users[1:]:
                    if one.uid not in turn.joining and claim.is_reserved_for(one.uid):
                        self._start_release(one, claim)
        finally:
            self._claims.remove_in_flight(in_flight)
        if is_special and special is not None and special.chosen is not None:
            await self._writer.write_mappings(pod, claim, special.chosen.mappings)

    def _assume(self, claim: ResourceClaim) -> bool:
        try:
            self._claims.assume(claim)
        except NotAssumed as problem:
            log.info("claim cannot be assumed", extra={"err": str(problem)})
            return False
        return True

    async def _see(self, claim: ResourceClaim) -> None:
        """Assume a created claim as soon as the watch has delivered it."""
        give_up_at = self._clock.now() + SEEN_SECONDS
        meta = claim.metadata
        while True:
            known = self._claims.get(meta.name, meta.namespace)
            if known is not None:
                self._assume(claim)
                return
            if self._clock.now() >= give_up_at:
                log.warning("claim was not seen", extra={"claim": meta.key})
                return
            await self._changed([meta.key], SEEN_AGAIN_SECONDS)

    async def _changed(self, keys: Sequence[str], seconds: float) -> None:
        """Wait until one of the claims changes, or the time is over."""
        changed = asyncio.Event()
        with self._claims.lister.notifying(keys, changed.set):
            try:
                async with asyncio.timeout(seconds):
                    await changed.wait()
            except TimeoutError:
                return

    # -- binding conditions ---------------------------------------------------------------------

    async def _wait_for_conditions(self, attempt: Attempt) -> None:
        """kube-scheduler: waitForBindingConditions."""
        began = self._clock.now()
        give_up_at = began + self._binding_timeout_seconds
        keys = [claim.metadata.key for claim in attempt.claims]
        outcome = ERROR
        try:
            while not self._are_ready(attempt):
                if self._clock.now() >= give_up_at:
                    outcome = TIMEOUT
                    raise NotWritten("device binding timeout: context deadline exceeded")
                left = max(give_up_at - self._clock.now(), 0.0)
                await self._changed(keys, min(LOOK_AGAIN_SECONDS, left))
            outcome = SUCCESS
        except _TimedOut as problem:
            outcome = TIMEOUT
            raise NotWritten(str(problem)) from problem
        except BindingFailed as problem:
            outcome = FAILURE
            raise NotWritten(str(problem)) from problem
        finally:
            self._count(attempt, outcome, self._clock.now() - began)

    def _are_ready(self, attempt: Attempt) -> bool:
        for position, claim in enumerate(attempt.claims):
            meta = claim.metadata
            known = self._claims.get(meta.name, meta.namespace)
            if known is None:
                raise NotWritten(f'could not find ResourceClaim "{meta.key}"')
            attempt.claims[position] = known
            if not is_ready(known):
                if is_timed_out(known, self._binding_timeout_seconds, self._clock.wall()):
                    raise _TimedOut(f"device binding timeout: claim={meta.name}")
                return False
        return True

    def _count(self, attempt: Attempt, outcome: str, seconds: float) -> None:
        metrics, profile = self._handle.metrics, self._handle.profile_name
        for claim in attempt.claims:
            if claim.status.allocation is None:
                continue
            for result in claim.status.allocation.devices.results:
                labels = (profile, result.driver, outcome)
                metrics.dra_bindingconditions_wait_duration.of(*labels).observe(seconds)
                if result.binding_conditions:
                    metrics.dra_bindingconditions_allocations.increment(*labels)

    # -- undoing --------------------------------------------------------------------------------

    def undo(self, pod: PodInfo, attempt: Attempt) -> None:
        """Release devices at once; the API calls follow in the background.

        kube-scheduler: Unreserve.
        """
        for position, claim in enumerate(attempt.user_claims):
            if position in attempt.allocations:
                self._claims.remove_in_flight(claim.metadata.uid)
            if claim.status.allocation is not None and claim.is_reserved_for(pod.uid):
                self._start_release(pod, claim)
        special = attempt.special
        if special is not None:
            claim = attempt.claims[-1]
            self._claims.remove_in_flight(claim.metadata.uid)
            if special.is_stored:
                self._start(self._writer.delete, claim)

    def _start_release(self, pod: PodInfo, claim: ResourceClaim) -> None:
        key = (claim.metadata.uid, pod.uid)
        if key not in self._releases:
            self._releases[key] = asyncio.Event()
            self._start(self._release, pod, claim)

    def _start(self, function: Callable[..., Awaitable[None]], *args: object) -> None:
        assert self.tasks is not None, "Unreserve comes after the plugin has started"
        self.tasks.start_soon(function, *args)

    async def _release(self, pod: PodInfo, claim: ResourceClaim) -> None:
        key = (claim.metadata.uid, pod.uid)
        try:
            self._assume(await self._writer.release(claim, pod.uid))
        except ApiError as problem:
            fields = {"pod": pod.key, "claim": claim.metadata.key, "err": str(problem)}
            log.warning("reservation was not taken back", extra=fields)
        finally:
            self._releases.pop(key).set()

    async def _released(self, pod: PodInfo, attempt: Attempt, position: int) -> None:
        """Wait until reservations of an earlier attempt of the pod are removed."""
        claim = attempt.claims[position]
        release = self._releases.get((claim.metadata.uid, pod.uid))
        if release is None:
            return
        await release.wait()
        self._renew(attempt, position)

    def _renew(self, attempt: Attempt, position: int) -> None:
        """Take the newest known version of a claim."""
        meta = attempt.claims[position].metadata
        known = self._claims.get(meta.name, meta.namespace)
        if known is not None and known.metadata.uid == meta.uid:
            attempt.claims[position] = known


class _Turn:
    """The pods that write one claim at the moment, one after the other."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.joining: dict[str, PodInfo] = {}
        """By UID, those that only add themselves to its users."""

    async def let_others_join(self) -> None:
        """Wait for the pods that are placed right after this one: they were waiting together."""
        joined, turns = 0, 0
        while turns < TURNS_TO_JOIN:
            turns = turns + 1 if joined == len(self.joining) else 0
            joined = len(self.joining)
            await asyncio.sleep(0)

    def users(self, writer: PodInfo, claim: ResourceClaim) -> list[PodInfo]:
        """The pods to reserve a claim for, the writer first; no more than it may have."""
        others = (
            one
            for one in self.joining.values()
            if one.uid != writer.uid and not claim.is_reserved_for(one.uid)
        )
        room = MAX_RESERVATIONS - len(claim.status.reserved_for)
        return [writer, *islice(others, max(room - 1, 0))]


class _TimedOut(Exception):
    """Devices were not ready in time."""
