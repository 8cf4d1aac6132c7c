"""Counted work of the queue: performance that tests can assert."""

from __future__ import annotations


class QueueWork:
    """Calls of plugins, and looks at shared waits, since the start."""

    __slots__ = ("hint_calls", "pre_enqueue_calls", "shared_waits")

    def __init__(self) -> None:
        self.hint_calls = 0
        self.pre_enqueue_calls = 0
        self.shared_waits = 0
