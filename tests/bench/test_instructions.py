"""Instructions are read from what callgrind writes, and counted of the ksched that is asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.instructions import counting_program, totals


def test_all_threads_of_a_dump_count() -> None:
    dump = "events: Ir\nthread: 1\n5 7\ntotals: 120\nthread: 2\nfn=(1) totals: 9\ntotals: 3\n"
    assert totals(dump) == 123


def test_the_program_runs_ksched_with_its_own_interpreter(tmp_path: Path) -> None:
    other = tmp_path / "a tree" / "bin" / "ksched"
    program = counting_program(other, tmp_path, tmp_path / "dump")
    shell = program.read_text().replace("exec valgrind", "printf '%s\\n'")
    command = ["sh", "-c", shell, "sh", "run", "-v 2"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    assert shown.stdout.splitlines()[-4:] == [
        str(other.with_name("python")),
        str(other),
        "run",
        "-v 2",
    ]
