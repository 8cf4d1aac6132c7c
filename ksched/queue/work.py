"""Counted work of the queue: performance that tests can assert."""

from __future__ import annotations


class QueueWork:
    """Calls of plugins since the start."""

    __slots__ = ("hint_calls", "pre_enqueue_calls")

    def __init__(self) -> None:
        self.hint_calls = 0
        self.pre_enqueue_calls = 0
