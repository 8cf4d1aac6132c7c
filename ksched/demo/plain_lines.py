"""The demo without a terminal: one line per sentence of the story and per decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from ksched.demo.panels import milliseconds
from ksched.demo.scoreboard import Scoreboard
from ksched.scheduling.decisions import Decision, Result


class PlainLines:
    """Writes what happens; a pod that waits is mentioned again only when its reason changes.

    ``on_gone`` is called when the reader has closed the pipe.
    """

    def __init__(self, board: Scoreboard, out: TextIO, on_gone: Callable[[], None]) -> None:
        self._board, self._out, self._on_gone = board, out, on_gone
        self._said: dict[str, str] = {}

    def say(self, caption: str) -> None:
        self._write(f"== {caption}")

    def decided(self, decision: Decision) -> None:
        if decision.result is Result.SCHEDULED:
            self._said.pop(decision.uid, None)
            fit = f"{decision.feasible_nodes} of {decision.evaluated_nodes} nodes fit"
            took = milliseconds(decision.algorithm_seconds)
            self._write(f"{decision.pod} -> {decision.node_name} ({fit}, {took})")
        elif self._said.get(decision.uid) != decision.message:
            self._said[decision.uid] = decision.message
            self._write(f"{decision.pod} {decision.result.value}: {decision.message}")

    def warn(self, notice: str) -> None:
        self._write(f"warning: {notice}")

    def _write(self, line: str) -> None:
        try:
            self._out.write(f"{self._board.elapsed_seconds:7.1f}s  {line}\n")
            self._out.flush()
        except BrokenPipeError:
            self._on_gone()
