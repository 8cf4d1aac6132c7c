"""The places of a pending pod and the allowed transitions.

::

    ABSENT ──add──► ACTIVE ──pop──► IN_FLIGHT ──┬──► ABSENT         passed Permit
                      ▲                         ├──► UNSCHEDULABLE  rejected; no hint accepted an
                      │ backoff over            │                   event meanwhile
                      │                         ├──► BACKOFF        an error, or rejected and woken
                    BACKOFF                     │                   meanwhile
                      ▲                         ├──► ACTIVE         woken, no backoff left
                      │ a hint accepts an event └──► GATED          a PreEnqueue plugin objects
                      │
                 UNSCHEDULABLE, GATED

A pod that waited too long, or that a plugin activates, moves as if a hint had accepted an event.
With no backoff left, UNSCHEDULABLE and GATED lead straight to ACTIVE. BACKOFF leads to IN_FLIGHT
when ACTIVE is empty. PreEnqueue runs before a pod enters ACTIVE or BACKOFF, except from one to the
other: it is GATED instead if a plugin objects. When the configuration has changed it runs again
before a pod that was ready is popped. Any place leads to ABSENT when the pod is deleted, and any in
which a pod waits to IN_FLIGHT when a member of its pod group is popped.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from enum import StrEnum
from itertools import takewhile
from typing import Protocol

from msgspec import Struct

from ksched.errors import InvariantBroken

TRANSITIONS_KEPT = 32_768


class Place(StrEnum):
    """Where a pod is; exactly one at a time."""

    ABSENT = "absent"
    """Unknown to the queue, or finished (being bound)."""
    ACTIVE = "active"
    """Ready for an attempt, in queue-sort order."""
    BACKOFF = "backoff"
    """Worth another attempt after its backoff."""
    UNSCHEDULABLE = "unschedulable"
    """Rejected; waits for an event that the rejecting plugins registered for."""
    GATED = "gated"
    """Held out of ACTIVE and BACKOFF by a PreEnqueue plugin."""
    IN_FLIGHT = "in flight"
    """Popped; its attempt has neither failed nor passed Permit yet."""


# Before Python 3.12 ``Place.ACTIVE`` is a function call, and the queue reads it in hot paths.
ABSENT = Place.ABSENT
ACTIVE = Place.ACTIVE
BACKOFF = Place.BACKOFF
UNSCHEDULABLE = Place.UNSCHEDULABLE
GATED = Place.GATED
IN_FLIGHT = Place.IN_FLIGHT

_LEADS_TO: dict[Place, tuple[Place, ...]] = {
    # Not to UNSCHEDULABLE: a pod may wait for an event only if all events since its pop were seen.
    ABSENT: (ACTIVE, BACKOFF, GATED),
    ACTIVE: (IN_FLIGHT, GATED, ABSENT),
    BACKOFF: (ACTIVE, IN_FLIGHT, GATED, ABSENT),
    UNSCHEDULABLE: (ACTIVE, BACKOFF, GATED, IN_FLIGHT, ABSENT),
    GATED: (ACTIVE, BACKOFF, IN_FLIGHT, ABSENT),
    IN_FLIGHT: (
        ACTIVE,
        BACKOFF,
        UNSCHEDULABLE,
        GATED,
        ABSENT,
    ),
}

ALLOWED = frozenset((source, target) for source, ways in _LEADS_TO.items() for target in ways)


class Transition(Struct, frozen=True, gc=False):
    """One change of place. ``cause`` is an event label, ``detail`` further explanation."""

    at: float
    uid: str
    source: Place
    target: Place
    cause: str
    detail: str = ""

    def __str__(self) -> str:
        why = f"{self.cause}: {self.detail}" if self.detail else self.cause
        return f"{self.at:9.3f}  {self.source.value} -> {self.target.value}  ({why})"


class Observer(Protocol):
    """Callback for every change of place (metrics, live views); must be quick and not raise."""

    def moved(self, cause: str, source: Place, target: Place) -> None:
        """Record a transition; ``cause`` is one of kube-scheduler's event labels."""
        ...


class Statistics(Struct, frozen=True):
    """The number of pods in each place.

    kube-scheduler: PendingPodsRecorder, updateMetricsOnStateChange, MetricRecorder.
    """

    active: int
    backoff: int
    unschedulable: int
    gated: int
    in_flight: int
    in_flight_events: int
    nominated: int

    def by_place(self) -> dict[Place, int]:
        return {
            place: getattr(self, place.name.lower()) for place in Place if place is not Place.ABSENT
        }


class TransitionLog:
    """The last transitions of all pods, oldest first; a ring of fixed length."""

    def __init__(self, length: int = TRANSITIONS_KEPT) -> None:
        self._ring: deque[Transition] = deque(maxlen=length)
        self.append = self._ring.append

    def flows(self, since: float) -> Counter[tuple[Place, Place]]:
        """Count the transitions after a time, by source and target."""
        recent = takewhile(lambda one: one.at > since, reversed(self._ring))
        return Counter((one.source, one.target) for one in recent)

    def story(self, uid: str) -> list[Transition]:
        """Return the recorded transitions of one pod. Reads the whole ring: not for hot paths."""
        return [transition for transition in self._ring if transition.uid == uid]


class InvalidTransition(InvariantBroken):
    """A transition that is not in ``ALLOWED``; carries the pod's story."""

    def __init__(self, pod: str, source: Place, target: Place, story: Sequence[Transition]) -> None:
        what = f"pod {pod}: no transition from {source.value} to {target.value}; its story:"
        super().__init__("\n".join([what, *(f"  {transition}" for transition in story)]))
        self.pod, self.source, self.target, self.story = pod, source, target, tuple(story)
