"""A plugin that hangs on one pod, two replicas, and a real API server with the shipped role."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.workloads import node, pod
from lab.assets import Assets
from lab.control_plane import ControlPlane
from lab.hanging_plugin import install

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 60.0
PODS = "/api/v1/namespaces/default/pods"
RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"
ELECTION = {
    "leaderElect": True,
    "leaseDuration": "6s",
    "renewDeadline": "4s",
    "retryPeriod": "500ms",
    "resourceName": "ksched",
}


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("point", ["filter", "pre_enqueue"])
def test_a_hanging_plugin_costs_one_pod_and_one_term(
    point: str, assets: Assets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = install(tmp_path, point, monkeypatch)
    config = {
        "leaderElection": ELECTION,
        "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
    }
    with (
        ControlPlane.running(tmp_path / "plane", assets) as plane,
        ExitStack() as stack,
    ):
        plane.kubectl("apply", "-f", "-", stdin=RBAC.read_text())
        assert plane.request("POST", "/api/v1/nodes", node(0)).status == 201

        def create(number: int, name: str) -> None:
            body = pod(number, "basic")
            body["metadata"]["name"] = name
            assert plane.request("POST", PODS, body).status == 201

        def bound(name: str) -> str:
            node_name: str = plane.request("GET", f"{PODS}/{name}").body["spec"].get("nodeName", "")
            return node_name

        a = stack.enter_context(plane.ksched("a", config=config))
        until(lambda: '"became leader"' in a.log(), "a leads")
        b = stack.enter_context(plane.ksched("b", config=config))
        until(lambda: '"another replica leads"' in b.log(), "b follows")
        create(0, "before")
        until(lambda: bound("before"), "a binds")
        create(1, "victim")
        create(2, "next")

        assert a.wait(PATIENCE_SECONDS) == 1, a.log()
        assert 'plugin="Hangs"' in a.log()
        assert '"pod quarantined" pod="default/victim"' in a.log()
        conditions = plane.request("GET", f"{PODS}/victim").body["status"]["conditions"]
        (condition,) = (one for one in conditions if one["type"] == "PodScheduled")
        assert (condition["status"], condition["reason"]) == ("False", "SchedulerHung")
        if point == "pre_enqueue":
            # It runs in followers too; what comes next reads the mark first.
            assert b.wait(PATIENCE_SECONDS) == 1, b.log()
            b = stack.enter_context(plane.ksched("c", config=config))
        until(lambda: bound("next"), "the next leader binds the others")
        create(3, "last")
        until(lambda: bound("last"), "and goes on")
        assert b.exit_code is None
        assert '"event loop hangs' not in b.log()
        assert not bound("victim")
