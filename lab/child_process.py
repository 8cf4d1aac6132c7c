"""A program that a test starts and that never outlives it."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from ksched.errors import KschedError

LOG_TAIL_BYTES = 4000
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class ChildFailed(KschedError):
    """A program ended, or did not become ready, when it should be running."""

    def __init__(self, name: str, problem: str, log: str) -> None:
        self.name, self.problem, self.log = name, problem, log
        super().__init__(f"{name}: {problem}; its log ends:\n{log}")


def _end_with_parent() -> None:
    # A test run that is killed cannot clean up; the kernel does it then.
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ChildProcess:
    """A running program whose output goes to a log file; a context manager that ends it.

    It has a session of its own, so that an interrupt from the terminal reaches only the test run,
    which then ends its programs in the right order. Start it from the main thread: the kernel ends
    it with the thread that started it.
    """

    def __init__(self, name: str, command: Sequence[str | Path], log: Path) -> None:
        self.name, self.log_path = name, log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509  only prctl, no lock is taken
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """``None`` while the program runs; minus the signal's number when a signal ended it."""
        return self._popen.poll()

    def log(self) -> str:
        """Everything the program has written so far."""
        return self.log_path.read_text(errors="replace")

    def wait(self, seconds: float) -> int | None:
        """Wait for the program to end by itself; ``None`` when it still runs."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def must_run(self, seconds: float) -> None:
        """Wait, and raise ``ChildFailed`` when the program ends meanwhile."""
        if (code := self.wait(seconds)) is not None:
            raise self.failure(f"ended with exit code {code}")

    def failure(self, problem: str) -> ChildFailed:
        return ChildFailed(self.name, problem, self.log()[-LOG_TAIL_BYTES:].rstrip())

    def send_signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def stop(self, grace_seconds: float = 15.0) -> int:
        """Ask the program to end, insist after ``grace_seconds``, and return its exit code."""
        self._popen.terminate()
        if (code := self.wait(grace_seconds)) is None:
            return self.kill()
        return code

    def kill(self) -> int:
        """End the program at once, as a crash would."""
        self._popen.kill()
        return self._popen.wait()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
