"""python -m bench.instructions: what pods that come alone cost, in instructions of the processor.

On a real control plane, ksched under ``valgrind --tool=callgrind``. How busy the machine is changes
CPU time by half, but not what is executed; the kernel's share is not in it. What the process does
without pods is measured first and subtracted.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import uvloop

from bench.latency import arrivals
from bench.load_generator import LoadGenerator
from bench.schedulers import RBAC
from bench.workloads import pod
from ksched.errors import KschedError
from lab.assets import Assets
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane

WARM_UP_PODS = 20
STARTED = '"scheduling"'
_TOTALS = re.compile(r"^totals: (\d+)", re.MULTILINE)


class Counted:
    """A ksched whose instructions are counted from one ``count`` to the next."""

    def __init__(self, process: ChildProcess, dump: Path) -> None:
        self._process, self._dump, self._dumps = process, dump, 0

    async def start(self) -> None:
        while STARTED not in self._process.log():
            await asyncio.sleep(1)
            self._process.must_run(0)

    def switch_on(self) -> None:
        self._control("-i", "on")

    def count(self) -> int:
        """The instructions since ``switch_on`` or the last call."""
        self._control("-d")
        self._dumps += 1
        return totals(Path(f"{self._dump}.{self._dumps}").read_text())

    def _control(self, *arguments: str) -> None:
        command = ("callgrind_control", *arguments, str(self._process.pid))
        subprocess.run(command, check=True, capture_output=True)


def totals(dump: str) -> int:
    """All instructions of a dump of callgrind's, of every thread."""
    return sum(int(number) for number in _TOTALS.findall(dump))


def counting_program(ksched: Path, folder: Path, dump: Path) -> Path:
    """Write a program that is ``ksched`` under callgrind."""
    options = ("--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={dump}")
    python = ksched.with_name("python")
    command = shlex.join(["valgrind", *options, str(python), str(ksched)])
    program = folder / "counted-ksched"
    fixed = "export OPENBLAS_NUM_THREADS=1 PYTHONHASHSEED=0"
    program.write_text(f'#!/bin/sh\n{fixed}\nexec {command} "$@"\n')
    program.chmod(0o755)
    return program


async def measure(plane: ControlPlane, options: argparse.Namespace) -> str:
    plane.kubectl("apply", "-f", str(RBAC))
    dump = plane.folder / "callgrind.out"
    program = counting_program(options.ksched, plane.folder, dump)
    count = int(options.rate * options.seconds)
    async with LoadGenerator.connected(plane) as load:
        await load.create_nodes(options.nodes)
        with plane.ksched(program=program) as process:
            counted = Counted(process, dump)
            await counted.start()
            warm_up = [pod(count + index, "basic") for index in range(WARM_UP_PODS)]
            await arrivals(load, options.rate, warm_up)
            counted.switch_on()
            await asyncio.sleep(options.seconds)
            idle = counted.count()
            bodies = [pod(index, "basic") for index in range(count)]
            _, waits = await arrivals(load, options.rate, bodies)
            busy = counted.count()
    thousands = (busy - idle) / len(waits) / 1000
    rest = idle / options.seconds / 1e6
    return f"{thousands:.0f} thousand instructions per pod, {rest:.1f} million a second without"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rate", type=float, default=4, help="pods a second; it is slow")
    parser.add_argument("--seconds", type=float, default=15)
    known = Path(sys.executable).with_name("ksched")
    parser.add_argument("--ksched", type=Path, default=known, help="another ksched")
    options = parser.parse_args()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="ksched-bench-") as folder,
            ControlPlane.running(Path(folder), Assets.find()) as plane,
        ):
            print(uvloop.run(measure(plane, options)))
    except (KschedError, OSError, subprocess.CalledProcessError) as error:
        print(f"bench.instructions: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
