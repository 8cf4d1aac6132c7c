"""What Kubernetes' own packages say about device selectors, asked through a Go program.

``tests/cel_go`` compiles expressions with ``k8s.io/dynamic-resource-allocation/cel``; it is built
from the module cache, without a download, so it needs a machine that has built Kubernetes before.

    python -m lab.cel_oracle       records the answers that tests/cel compares with everywhere
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.cel_expressions import DEVICES, expressions

SOURCE = Path(__file__).parent.parent / "tests" / "cel_go"
RECORDED = Path(__file__).parent.parent / "tests" / "cel" / "upstream_answers.jsonl"
WRITTEN = RECORDED.with_name("expressions.txt")
GENERATED = 1500
BUILD_SECONDS, ANSWER_SECONDS = 900, 300


class CannotBuild(Exception):
    """There is no Go here, or not the modules."""


def build(folder: Path) -> Path:
    """Build the program into a folder; raises ``CannotBuild``."""
    go = shutil.which("go")
    if go is None:
        raise CannotBuild("go not found")
    program = folder / "celanswers"
    offline = {**os.environ, "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    done = subprocess.run(
        [go, "build", "-o", program, "."],
        cwd=SOURCE,
        env=offline,
        check=False,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    if done.returncode:
        raise CannotBuild(done.stderr.strip())
    return program


def ask(program: Path, questions: Iterable[str]) -> list[dict[str, Any]]:
    """One answer per expression, on all devices."""
    lines = (json.dumps({"expression": one, "devices": DEVICES}) for one in questions)
    done = subprocess.run(
        [program],
        input="\n".join(lines),
        check=True,
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    program = build(Path(sys.argv[1]))
    asked = [line for line in WRITTEN.read_text().splitlines() if line]
    asked += expressions(seed=1, count=GENERATED)
    with RECORDED.open("w") as out:
        for question, answer in zip(asked, ask(program, asked), strict=True):
            out.write(json.dumps({"expression": question, **answer}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
