#!/usr/bin/env python3
"""List the functions and types of kube-scheduler whose names tests/test_upstream_names.py looks up.

Written to tests/upstream_names.txt; with --check nothing is written, and the exit code is 1 if the
list is not what the sources say. They are in Go's module cache after ``make assets``.

The list is made by rule, not by choice: from the files below, every function and method of at least
ten lines and every exported struct or interface. Left out are files that only serve tests, those of
pod groups and devices, and names that are not looked for: of one word (Name, Less, String),
constructors and their options (New, new, With), exported accessors (Get, Set), and what names pod
groups, placements or devices.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

VERSION = "v1.36.4"
CLIENT_VERSION = "v0.36.4"
LIST = Path(__file__).resolve().parent.parent / "tests" / "upstream_names.txt"
HEADER = f"""\
# Functions and types of kube-scheduler {VERSION} and of its leader election: file, name.
# Made by tools/upstream_names.py, which tells by what rule.
"""

SCHEDULER = f"k8s.io/kubernetes@{VERSION}/pkg/scheduler"
ELECTION = f"k8s.io/client-go@{CLIENT_VERSION}/tools/leaderelection"
FILES = (
    *("schedule_one.go", "eventhandlers.go", "scheduler.go", "extender.go"),
    *("framework/types.go", "framework/events.go"),
    *("backend/queue/*.go", "backend/cache/*.go", "backend/cache/debugger/*.go"),
    *("framework/preemption/*.go", "framework/runtime/*.go", "framework/plugins/**/*.go"),
    "metrics/*.go",
)
LEFT_OUT = re.compile(
    r"_test\.go|/testing|testing\.go|/fake|test_utils"
    r"|dynamicresources|podgroup|gangscheduling|topologyaware|plugins/feature|plugins/names"
)
NOT_LOOKED_FOR = re.compile(
    r"^(New|new|With|Get|Set)[A-Z]|[pP]odGroup|[pP]lacement|DRA|Workload|Device"
)
WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
DECLARED = re.compile(r"(func) (?:\([^)]*\) )?(\w+)[\[(]|(type) (\w+)[\[ ]")
MIN_LINES = 10


def names(module_cache: Path) -> dict[str, str]:
    """The file of every name, relative to pkg/scheduler."""
    scheduler, election = module_cache / SCHEDULER, module_cache / ELECTION
    found: dict[str, str] = {}
    for pattern in FILES:
        for path in sorted(scheduler.glob(pattern)):
            file = path.relative_to(scheduler).as_posix()
            if not LEFT_OUT.search(f"/{file}"):
                for name in names_in(path.read_text()):
                    found.setdefault(name, file)
    for name in names_in((election / "leaderelection.go").read_text()):
        found.setdefault(name, "client-go/tools/leaderelection/leaderelection.go")
    return found


def names_in(text: str) -> Iterator[str]:
    """The names that one file declares."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = DECLARED.match(line)
        if match is None:
            continue
        name = match[2] or match[4]
        if match[3]:
            is_taken = name[0].isupper() and line.endswith((" struct {", " interface {"))
        else:
            is_taken = _length(lines, number) >= MIN_LINES
        if is_taken and len(WORD.findall(name)) > 1 and not NOT_LOOKED_FOR.search(name):
            yield name


def _length(lines: list[str], number: int) -> int:
    """How many lines a declaration has; gofmt ends it with a brace at the line's start."""
    if not lines[number].endswith(("{", "(")):
        return 1
    return lines.index("}", number) - number + 1


def listing(module_cache: Path) -> str:
    """The text of tests/upstream_names.txt."""
    rows = sorted((file, name) for name, file in names(module_cache).items())
    return HEADER + "".join(f"{file} {name}\n" for file, name in rows)


def main() -> int:
    go = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True)
    text = listing(Path(go.stdout.strip()))
    if "--check" not in sys.argv:
        LIST.write_text(text)
        return 0
    return int(LIST.read_text() != text)


if __name__ == "__main__":
    sys.exit(main())
