"""Which pod next: pending pods, why they wait, and what wakes them.

``SchedulingQueue`` is the single writer of a pending pod's place. Everything here is synchronous
except ``SchedulingQueue.pop``, so nothing needs a lock. Does not belong here: whether a pod fits
(the cycle), what the cluster looks like (the cache), timers (whoever runs the queue calls its
flushers), I/O.
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
