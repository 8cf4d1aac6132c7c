"""The plugin of docs/custom_kinds.md, installed, in ``ksched run`` on a real API server."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.workloads import node, pod
from ksched.api.watched_kinds import Unstructured, WatchedKind
from ksched.testing import custom_resource_definition
from lab.assets import Assets
from lab.control_plane import ControlPlane
from lab.documented_plugin import install

pytestmark = [pytest.mark.real, pytest.mark.real_time, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 100.0
PODS = "/api/v1/namespaces/default/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"
RELEASES: WatchedKind[Unstructured] = WatchedKind.custom(
    Unstructured, group="example.com", version="v1", plural="releases", kind="Release"
)
RULE = {"apiGroups": ["example.com"], "resources": ["releases"], "verbs": ["get", "list", "watch"]}


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.05)
    return found


def roles() -> str:
    """The shipped roles, with the rule that the page tells to add."""
    documents = list(yaml.safe_load_all(RBAC.read_text()))
    for document in documents:
        if document["kind"] == "ClusterRole":
            document["rules"].append(RULE)
    return yaml.safe_dump_all(documents)


def test_a_pod_waits_for_a_custom_resource(
    assets: Assets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = install(tmp_path / "packages", monkeypatch)
    config = {"profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}]}
    with ControlPlane.running(tmp_path / "plane", assets) as plane:
        plane.kubectl("apply", "-f", "-", stdin=roles())
        assert plane.request("POST", "/api/v1/nodes", node(0)).status == 201

        def create(number: int, name: str, **labels: str) -> None:
            body = pod(number, "basic")
            body["metadata"] |= {"name": name, "labels": labels}
            assert plane.request("POST", PODS, body).status == 201

        def of(name: str) -> Any:
            return plane.request("GET", f"{PODS}/{name}").body

        def message(name: str) -> str:
            conditions = of(name)["status"].get("conditions") or [{}]
            text: str = conditions[0].get("message", "")
            return text

        with plane.ksched(config=config) as ksched:
            create(0, "plain")
            create(1, "web", release="summer")
            until(lambda: of("plain")["spec"].get("nodeName"), "scheduling without the definition")
            assert "does not serve this kind" in ksched.log()
            until(lambda: "there is no release summer" in message("web"), "the pod is told why")

            definition = custom_resource_definition(RELEASES)
            assert plane.request("POST", DEFINITIONS, definition).status == 201
            until(lambda: "serves this kind now" in ksched.log(), "the definition is noticed")
            release = {
                "apiVersion": "example.com/v1",
                "kind": "Release",
                "metadata": {"name": "summer", "namespace": "default"},
                "spec": {"ready": False},
            }
            path = RELEASES.resource.path("default")
            assert plane.request("POST", path, release).status == 201
            create(2, "late", release="summer")
            until(lambda: "release summer is not ready" in message("late"), "a pod that waits")
            assert not of("web")["spec"].get("nodeName")

            patch = {"spec": {"ready": True}}
            kind = "application/merge-patch+json"
            answer = plane.request("PATCH", f"{path}/summer", patch, content_type=kind)
            assert answer.status == 200, answer.body
            began = time.monotonic()
            until(lambda: of("web")["spec"].get("nodeName"), "web is woken")
            until(lambda: of("late")["spec"].get("nodeName"), "late is woken")
            # The leftover flush would take a minute.
            assert time.monotonic() - began < 20
