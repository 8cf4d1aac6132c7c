"""Reads the workloads of kube-scheduler's own benchmark, scheduler_perf, from its YAML files.

They are part of the Go module k8s.io/kubernetes, from which ``make assets`` builds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bench.workloads import Object
from ksched.errors import KschedError
from lab.assets import KUBERNETES_VERSION

FILE = "performance-config.yaml"
FOLDER = "test/integration/scheduler_perf"
PREFERRED = "performance"
"""The label of workloads that are large enough to measure."""
POD_TEMPLATE = "templates/pod-default.yaml"
NODE_TEMPLATE = "templates/node-default.yaml"

_ACTION = re.compile(r"\{\{\s*([^}]*?)\s*\}\}")
_FUNCTIONS = {"Mod": int.__mod__, "DivideInt": int.__floordiv__, "AddInt": int.__add__}


class PerfConfigError(KschedError):
    """A test case of scheduler_perf cannot be read."""


@dataclass(frozen=True)
class PerfCase:
    """A test case with the numbers of one of its workloads."""

    name: str
    workload: str
    folder: Path
    operations: list[Object]
    params: dict[str, Any]
    pod_template: str

    def count(self, operation: Object) -> int:
        """How many objects an operation is about."""
        name = operation.get("countParam")
        return int(self.params[name.removeprefix("$")] if name else operation.get("count", 1))

    def render(self, path: str, index: int = 0, count: int = 1) -> Object:
        """One object from a template of the test case."""
        body: Object = yaml.safe_load(render(_text(self.folder / path), index, count))
        return body

    @property
    def common(self) -> Path:
        """The folder that all test cases share."""
        return self.folder.parent


def load(root: Path, wanted: str, part: int = 1) -> PerfCase:
    """Read ``topic/TestCase`` or ``topic/TestCase/workload``; ``part`` divides its numbers.

    Without a workload, the last of those that are meant for measurements is taken.
    """
    topic, _, rest = wanted.partition("/")
    name, _, workload = rest.partition("/")
    file = root / topic / FILE
    if not file.is_file():
        raise PerfConfigError(f"{wanted}: {file} does not exist")
    cases = {case["name"]: case for case in yaml.safe_load(file.read_text())}
    if name not in cases:
        raise PerfConfigError(f"{wanted}: no such test case, {topic} has {', '.join(cases)}")
    case = cases[name]
    chosen = _workload(wanted, case["workloads"], workload)
    params = {
        key: max(1, value // part) if isinstance(value, int) else value
        for key, value in chosen["params"].items()
    }
    default = case.get("defaultPodTemplatePath", f"../{POD_TEMPLATE}")
    operations = case["workloadTemplate"]
    return PerfCase(name, chosen["name"], file.parent, operations, params, default)


def _workload(wanted: str, workloads: list[Object], name: str) -> Object:
    by_name = {one["name"]: one for one in workloads}
    if name:
        if name not in by_name:
            raise PerfConfigError(f"{wanted}: no such workload, it has {', '.join(by_name)}")
        return by_name[name]
    measured = [one for one in workloads if PREFERRED in one.get("labels", ())]
    return (measured or workloads)[-1]


def render(text: str, index: int, count: int) -> str:
    """Fill in a template of text/template, as far as scheduler_perf's templates use it."""
    variables = {".Index": index, ".Count": count}

    def value(word: str) -> int:
        return variables[word] if word in variables else int(word)

    def replaced(action: re.Match[str]) -> str:
        words = action[1].split()
        try:
            if len(words) == 1:
                return str(value(words[0]))
            function, left, right = words
            return str(_FUNCTIONS[function](value(left), value(right)))
        except (KeyError, ValueError):
            raise PerfConfigError(f"template: cannot evaluate {action[0]}") from None

    return _ACTION.sub(replaced, text)


@cache
def _text(path: Path) -> str:
    return path.read_text()


def find_root() -> Path:
    """Return scheduler_perf's folder in the cache of Go modules."""
    go = shutil.which("go")
    if go is None:
        raise PerfConfigError("scheduler_perf: go not found, wanted for its module cache")
    command = [go, "env", "GOMODCACHE"]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    root = Path(modules) / f"k8s.io/kubernetes@{KUBERNETES_VERSION}" / FOLDER
    if not root.is_dir():
        raise PerfConfigError(f"scheduler_perf: {root} does not exist, `make assets` fetches it")
    return root
