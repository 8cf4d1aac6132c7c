from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.child_process import ChildFailed, ChildProcess

SLEEPER = ("sleep", "60")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_child_ends_with_its_block(tmp_path: Path) -> None:
    with ChildProcess("sleeper", SLEEPER, tmp_path / "log") as child:
        code_inside = child.exit_code

    assert code_inside is None
    assert child.exit_code == -signal.SIGTERM
    assert not is_running(child.pid)


def test_child_ends_when_its_block_is_interrupted(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        ChildProcess("sleeper", SLEEPER, tmp_path / "log") as child,
    ):
        raise KeyboardInterrupt

    assert child.exit_code == -signal.SIGTERM


def test_child_that_ignores_the_request_to_end_is_killed(tmp_path: Path) -> None:
    script = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"
    child = ChildProcess("deaf", ("sh", "-c", script), tmp_path / "log")
    while "deaf" not in child.log():
        child.must_run(0.01)

    assert child.stop(grace_seconds=0.1) == -signal.SIGKILL


def test_failure_carries_the_end_of_the_log(tmp_path: Path) -> None:
    child = ChildProcess("broken", ("sh", "-c", "echo no such flag >&2; exit 3"), tmp_path / "log")

    with pytest.raises(ChildFailed, match=r"broken: ended with exit code 3.*\nno such flag"):
        child.must_run(10)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys\n"
        "from lab.child_process import ChildProcess\n"
        "child = ChildProcess('sleeper', ('sleep', '60'), pathlib.Path(sys.argv[1]))\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    parent = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    pid = int(parent.stdout)

    # The kernel tells the child when it gets round to it.
    deadline = time.monotonic() + 10
    while _runs(pid):
        assert time.monotonic() < deadline, f"process {pid} outlived its parent"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Whether a process lives; whoever inherits a child may take a while to collect a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
