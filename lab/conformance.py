"""Kubernetes' own end-to-end tests of scheduling and devices, with ksched as the only scheduler.

    python -m lab.conformance
    python -m lab.conformance --group devices
    python -m lab.conformance --group scheduling --focus "preemption"
    python -m lab.conformance --scheduler kube-scheduler

A control plane on loopback with kube-controller-manager and simulated nodes (``ksched kubelet``);
the tests are those of Kubernetes' e2e.test that need no feature beyond the defaults and no real
machine, built by ``tools/assets.py --conformance``. Logs and the tests' own report are kept in
build/conformance. Ends with 0 when every test of a group passed, none was skipped or is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ksched.errors import KschedError
from lab.assets import (
    CONFORMANCE_PROGRAMS,
    CONFORMANCE_TEST,
    Assets,
    AssetsMissing,
    locate,
)
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane

ROOT = Path(__file__).parents[1]
NODES = 3
ADD_ONS = ("kube-proxy", "fluentd-elasticsearch", "node-problem-detector")
"""Many tests wait up to a minute for a pod of each on every node, and go on without."""
START_POLLS = 600
POLL_SECONDS = 0.1


class Group(NamedTuple):
    """Tests by their labels, and how many those are in this version of Kubernetes."""

    labels: str
    number: int


GROUPS = {
    "scheduling": Group(
        "sig-scheduling && (Feature: isEmpty || Feature: containsAny SchedulerAsyncPreemption)", 28
    ),
    "devices": Group("DRA && Feature: isEmpty", 27),
}


class Outcome(NamedTuple):
    """How one test ended: passed, failed, skipped, timedout, ..."""

    name: str
    state: str
    seconds: float
    message: str

    @property
    def passed(self) -> bool:
        return self.state == "passed"


def read_report(text: str) -> list[Outcome]:
    """The tests that were selected, in the order of the report.

    Those that the filters left out are listed there too, as skipped without an attempt.
    """
    outcomes = []
    for suite in json.loads(text):
        for spec in suite["SpecReports"] or ():
            if spec["State"] == "skipped" and not spec["NumAttempts"]:
                continue
            if spec["LeafNodeType"] == "It" or spec["State"] != "passed":
                outcomes.append(_outcome(spec))
    return outcomes


def _outcome(spec: Mapping[str, Any]) -> Outcome:
    parts = [*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]]
    name = " ".join(part for part in parts if part) or spec["LeafNodeType"]
    message = (spec.get("Failure") or {}).get("Message", "")
    return Outcome(name, spec["State"], spec["RunTime"] / 1e9, message)


def table(outcomes: Sequence[Outcome]) -> str:
    """One line per test, sorted by name; what did not pass with its reason."""
    lines = []
    for one in sorted(outcomes):
        lines.append(f"{one.state:8} {one.seconds:6.1f} s  {one.name}")
        if not one.passed and one.message:
            lines.append(f"{'':19}{one.message.strip().splitlines()[0][:200]}")
    return "\n".join(lines)


def verdict(outcomes: Sequence[Outcome], wanted: int | None) -> tuple[str, int]:
    """The last line and the exit code; ``wanted`` is ``None`` when only some were selected."""
    passed = sum(one.passed for one in outcomes)
    total = len(outcomes) if wanted is None else wanted
    text = f"{passed} of {total} passed"
    if len(outcomes) != total:
        text += f"; {len(outcomes)} ran, {total} were expected"
    return text, 0 if passed == len(outcomes) == total and total else 1


@contextmanager
def cluster(folder: Path, scheduler: str) -> Iterator[tuple[ControlPlane, list[ChildProcess]]]:
    """A control plane with controllers, nodes and one scheduler, and the programs to look after."""
    with ExitStack() as stack:
        flags = ["--allow-privileged=true"]
        plane = stack.enter_context(ControlPlane.running(folder, Assets.find(), flags))
        plane.kubectl("apply", "-f", str(ROOT / "config" / "rbac.yaml"))
        manager = stack.enter_context(_controller_manager(plane))
        nodes = stack.enter_context(_nodes(plane))
        started = plane.ksched() if scheduler == "ksched" else plane.kube_scheduler()
        programs = [manager, nodes, stack.enter_context(started)]
        _create_add_ons(plane, programs)
        yield plane, programs


def _controller_manager(plane: ControlPlane) -> ChildProcess:
    key = plane.ca_file.with_suffix(".key")
    return plane.kube_controller_manager(
        f"--root-ca-file={plane.ca_file}", f"--service-account-private-key-file={key}"
    )


def _nodes(plane: ControlPlane) -> ChildProcess:
    program = Path(sys.executable).with_name("ksched")
    command = (program, "kubelet", "--nodes", str(NODES), "--kubeconfig", plane.kubeconfig())
    return ChildProcess("kubelet", command, plane.folder / "kubelet.log")


def _program(name: str) -> Path:
    path = locate(name)
    if path is None:
        raise AssetsMissing((name,))
    return path


def _create_add_ons(plane: ControlPlane, programs: Sequence[ChildProcess]) -> None:
    """Put the pods on the nodes that the tests look for, and wait until all of them run."""
    names = [f"node-{number:04}" for number in range(1, NODES + 1)]
    path = "/api/v1/namespaces/kube-system/pods"
    for node in names:
        _wait(programs, partial(_exists, plane, f"/api/v1/nodes/{node}"))
        for add_on in ADD_ONS:
            container = {"name": "main", "image": "simulated"}
            pod = {
                "metadata": {"name": f"{add_on}-{node}"},
                "spec": {"nodeName": node, "containers": [container]},
            }
            answer = plane.request("POST", path, pod)
            if answer.status != 201:
                raise KschedError(f"pod {add_on}-{node}: got {answer.status}: {answer.body}")
    _wait(programs, partial(_all_run, plane, path))
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    _wait(programs, partial(_exists, plane, account))


def _exists(plane: ControlPlane, path: str) -> bool:
    return plane.request("GET", path).status == 200


def _all_run(plane: ControlPlane, path: str) -> bool:
    pods = plane.request("GET", path).body["items"]
    return all(pod["status"]["phase"] == "Running" for pod in pods)


def _wait(programs: Sequence[ChildProcess], is_so: Callable[[], bool]) -> None:
    for _ in range(START_POLLS):
        if is_so():
            return
        for program in programs:
            program.must_run(POLL_SECONDS / len(programs))
    raise programs[1].failure(f"the cluster is not ready after {START_POLLS * POLL_SECONDS:.0f} s")


def run_tests(
    plane: ControlPlane,
    programs: Sequence[ChildProcess],
    group: Group,
    focus: str,
    out: Path,
    minutes: float,
) -> list[Outcome]:
    """Run the tests of a group; raises ``ChildFailed`` when a program of the cluster ends."""
    report = out / "report.json"
    report.unlink(missing_ok=True)
    command: list[str | Path] = [
        _program(CONFORMANCE_TEST),
        f"--kubeconfig={plane.kubeconfig()}",
        "--provider=skeleton",
        "--disable-log-dump",
        "--dump-logs-on-failure=false",
        f"--ginkgo.label-filter={group.labels}",
        f"--ginkgo.timeout={minutes:.0f}m",
        f"--ginkgo.json-report={report}",
        "--ginkgo.no-color",
        "--ginkgo.silence-skips",
    ]
    if focus:
        command.append(f"--ginkgo.focus={focus}")
    with ChildProcess(CONFORMANCE_TEST, command, out / "tests.log") as tests:
        while tests.wait(1.0) is None:
            for program in programs:
                program.must_run(POLL_SECONDS)
        if not report.exists():
            raise tests.failure(f"ended with exit code {tests.exit_code} and without a report")
    return read_report(report.read_text())


def run_group(name: str, options: argparse.Namespace) -> int:
    out: Path = options.out / name
    out.mkdir(parents=True, exist_ok=True)
    for log in out.glob("*.log"):
        log.unlink()
    print(f"{name}: {options.scheduler}, Kubernetes' tests, log in {out / 'tests.log'}", flush=True)
    group = GROUPS[name]
    with tempfile.TemporaryDirectory(prefix="ksched-conformance-") as folder:
        try:
            with cluster(Path(folder), options.scheduler) as (plane, programs):
                outcomes = run_tests(plane, programs, group, options.focus, out, options.minutes)
        finally:
            for log in Path(folder).glob("*.log"):
                (out / log.name).write_bytes(log.read_bytes())
    text, code = verdict(outcomes, None if options.focus else group.number)
    print(f"{table(outcomes)}\n{name}: {text}", flush=True)
    return code


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--group", choices=GROUPS, help="only these (default: all)")
    parser.add_argument("--focus", default="", help="only tests whose name matches this expression")
    parser.add_argument("--scheduler", choices=("ksched", "kube-scheduler"), default="ksched")
    parser.add_argument("--minutes", type=float, default=60, help="at most, for each group")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "conformance")
    options = parser.parse_args(arguments)
    try:
        for program in CONFORMANCE_PROGRAMS:
            _program(program)
        codes = [run_group(name, options) for name in GROUPS if options.group in (None, name)]
    except KschedError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
