"""The scheduling queue: pending pods, why each one waits, and which events requeue it.

``SchedulingQueue`` is the single writer of a pending pod's place. Everything here is synchronous
except ``SchedulingQueue.pop``, so no locks are needed. Does not belong here: whether a pod fits
(the scheduling cycle), cluster state (the cache), timers (the scheduler calls the flush methods
periodically), I/O.
"""

from ksched.queue.hints import registrations
from ksched.queue.places import InvalidTransition, Place, Transition
from ksched.queue.scheduling_queue import (
    BACKOFF_FLUSH_SECONDS,
    UNSCHEDULABLE_FLUSH_SECONDS,
    SchedulingQueue,
)

__all__ = [
    "BACKOFF_FLUSH_SECONDS",
    "UNSCHEDULABLE_FLUSH_SECONDS",
    "InvalidTransition",
    "Place",
    "SchedulingQueue",
    "Transition",
    "registrations",
]
