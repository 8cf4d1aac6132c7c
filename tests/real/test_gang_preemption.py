"""Gangs that preempt on a real API server: scenarios 20, 21 and 24, in every dialect.

Group objects have names of their own in each test: nobody removes the finalizer of a PodGroup.
Nobody acts as kubelet: a victim with a grace period terminates until the test deletes it for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ksched.testing import PodBuilder, make_node, make_pod
from lab.assets import Assets
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane
from lab.gangs import DIALECTS, KINDS, Gang, configured, priority_class

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CONFIG = Path(__file__).parents[2] / "config"
NOW = "?gracePeriodSeconds=0"
PATIENCE_SECONDS = 60.0
GATES = (
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    "--feature-gates=GenericWorkload=true,GangScheduling=true",
)


@pytest.fixture(scope="module")
def plane(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.running(tmp_path_factory.mktemp("gangs"), assets, GATES) as plane:
        for name in ("rbac.yaml", "rbac-gangs.yaml", "crd-podgroups.yaml"):
            plane.kubectl("apply", "-f", str(CONFIG / name))
        for value in (1, 100, 200):
            assert plane.request("POST", CLASSES, priority_class(value)).status == 201
        yield plane


class Site:
    """A cluster of nodes with 4 cpu each on which ksched reads one dialect."""

    def __init__(self, plane: ControlPlane, ksched: ChildProcess) -> None:
        self.plane, self.ksched = plane, ksched

    def create(self, *objects: dict[str, Any] | PodBuilder) -> None:
        for one in objects:
            body = one.to_dict() if isinstance(one, PodBuilder) else one
            body["metadata"].pop("uid", None)
            path = _path(body)
            answer = self.plane.request("POST", path, body)
            assert answer.status == 201, answer.body

    def pods(self) -> dict[str, Any]:
        items = self.plane.request("GET", PODS).body["items"]
        return {item["metadata"]["name"]: item for item in items}

    def bound(self, prefix: str) -> dict[str, str]:
        return {
            name: pod["spec"]["nodeName"]
            for name, pod in self.pods().items()
            if name.startswith(prefix) and pod["spec"].get("nodeName")
        }

    def terminating(self) -> list[str]:
        pods = self.pods().items()
        return [name for name, pod in pods if pod["metadata"].get("deletionTimestamp")]

    def message(self, name: str) -> str:
        conditions = self.pods()[name]["status"].get("conditions", [])
        return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")

    def end(self, name: str) -> None:
        assert self.plane.request("DELETE", f"{PODS}/{name}{NOW}").status == 200

    def until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self.ksched.log()[-3000:]}"
            self.ksched.must_run(0.1)

    def stays(self, condition: Callable[[], Any], seconds: float) -> None:
        """Look for a while whether something remains true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert condition(), self.ksched.log()[-3000:]
            self.ksched.must_run(0.2)


def _path(body: dict[str, Any]) -> str:
    kind, version = body["kind"], body["apiVersion"]
    if kind == "PodGroup":
        return f"/apis/{version}/namespaces/default/podgroups"
    return {"Pod": PODS, "Node": NODES}[kind]


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def site(plane: ControlPlane, dialect: str, request: pytest.FixtureRequest) -> Iterator[Site]:
    name = "".join(one if one.isalnum() else "-" for one in request.node.name)
    flags = ["-v=2"]
    if dialect == "in-tree":
        flags.append("--feature-gates=GenericWorkload=true,GangScheduling=true")
    profiles = {"profiles": configured(dialect)["profiles"]}
    for number in range(4):
        body = make_node(f"n{number}").capacity(cpu="4", memory="16Gi", pods="110").to_dict()
        assert plane.request("POST", NODES, body).status == 201
    with plane.ksched(name, flags=flags, config=profiles) as ksched:
        yield Site(plane, ksched)
    groups = [
        f"/apis/{kind.resource.group}/{kind.resource.version}/namespaces/default/podgroups"
        for kind in KINDS.values()
    ]
    for path in (PODS, NODES, *groups):
        assert plane.request("DELETE", f"{path}{NOW}").status == 200
    assert ksched.exit_code == 0, ksched.log()[-3000:]


def single(name: str, priority: int = 1, cpu: str = "4", grace_seconds: int = 0) -> PodBuilder:
    spec = {
        "priorityClassName": f"p{priority}",
        "terminationGracePeriodSeconds": grace_seconds,
    }
    return make_pod(name).req(cpu=cpu).merge({"spec": spec})


def gang_pods(gang: Gang) -> list[PodBuilder]:
    return [pod.merge({"spec": {"terminationGracePeriodSeconds": 0}}) for pod in gang.pods()]


def test_20_nobody_is_evicted_if_one_node_cannot_be_freed(site: Site, dialect: str) -> None:
    site.create(*[single(f"low-{n}") for n in range(3)], single("low-top", priority=200))
    site.until(lambda: len(site.bound("low")) == 4, "the nodes are full")
    gang = Gang(dialect, "high20", 4, cpu="4", priority=100)
    site.create(*gang.objects(), *gang_pods(gang))
    wanted = "without pods of lower priority 3 of 4 would fit"
    site.until(lambda: wanted in site.message("high20-0"), "the gang was refused")
    site.stays(lambda: len(site.bound("low")) == 4 and not site.bound("high20"), 3.0)
    assert site.terminating() == []


def test_21_only_as_much_surplus_as_needed_is_evicted(site: Site, dialect: str) -> None:
    elastic = Gang(dialect, "low21", 16, minimum=4, priority=1)
    site.create(*elastic.objects(), *gang_pods(elastic))
    site.until(lambda: len(site.bound("low")) == 16, "the nodes are full")
    gang = Gang(dialect, "high21", 2, cpu="1", priority=100)
    site.create(*gang.objects(), *gang_pods(gang))
    site.until(lambda: len(site.bound("high21")) == 2, "the gang is bound")
    site.stays(lambda: len(site.bound("low")) == 14, 2.0)


def test_24_freed_room_is_kept_and_there_is_no_second_wave(site: Site, dialect: str) -> None:
    site.create(*[single(f"low-{n}", grace_seconds=600) for n in range(3)])
    site.create(single("low-top", priority=200))
    site.until(lambda: len(site.bound("low")) == 4, "the nodes are full")
    gang = Gang(dialect, "high24", 3, cpu="4", priority=100)
    site.create(*gang.objects(), *gang_pods(gang))
    site.until(lambda: len(site.terminating()) == 3, "three victims terminate")
    going = site.terminating()
    nodes = {site.bound("low")[name] for name in going}
    site.create(single("thief", priority=100), single("mouse", cpu="1"))
    site.end(going[0])
    site.stays(lambda: len(site.terminating()) == 2 and not site.bound("thief"), 4.0)
    assert not site.bound("mouse")
    assert not site.bound("high24")
    for name in going[1:]:
        site.end(name)
    site.until(lambda: len(site.bound("high24")) == 3, "the gang is bound")
    assert set(site.bound("high24").values()) == nodes
