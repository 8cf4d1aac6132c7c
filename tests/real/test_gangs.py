"""Gangs in ``ksched run`` on a real API server, in every dialect, under the shipped roles.

The numbers are those of the scenarios in ``tests/groups``, there in virtual time. There are neither
controllers nor kubelets, so pods run and end when the tests say so. ``KSCHED_GANG_ROUNDS`` asks for
more kills than the few of an ordinary run.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.workloads import HOSTNAME, node
from ksched.cli import execute
from ksched.testing import PodBuilder, make_pod
from lab.assets import Assets
from lab.audit_log import AuditLog
from lab.child_process import ChildProcess
from lab.control_plane import ADMIN, HOST, KSCHED, ControlPlane, free_ports
from lab.gangs import DIALECTS, KINDS, Gang

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CONFIG = Path(__file__).parents[2] / "config"
GATES = (
    "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    "--feature-gates=GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true",
)
PROFILE = yaml.safe_load((CONFIG / "examples" / "gangs.yaml").read_text())["profiles"]
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
NOW = "?gracePeriodSeconds=0"
MERGE = "application/merge-patch+json"
PATIENCE_SECONDS = 60.0
ROUNDS = int(os.environ.get("KSCHED_GANG_ROUNDS", "3"))

every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
    return found


def refusal_of_binds(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A policy by which nothing is bound to a node, and what puts it in force."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
    }
    policy = {
        "metadata": {"name": f"no-binds-to-{name}"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": f"object.target.name != '{name}'"}],
        },
    }
    in_force = {
        "metadata": policy["metadata"],
        "spec": {"policyName": f"no-binds-to-{name}", "validationActions": ["Deny"]},
    }
    return policy, in_force


class Site:
    """A cluster of small nodes, and one connection to it."""

    def __init__(self, plane: ControlPlane, audit: AuditLog) -> None:
        self.plane, self.audit = plane, audit
        port = int(plane.url.rpartition(":")[2])
        self._wire = http.client.HTTPSConnection(
            HOST, port, timeout=30, context=plane.ssl_context()
        )

    def close(self) -> None:
        self._wire.close()

    def send(self, method: str, path: str, body: object = None, kind: str = "") -> Any:
        status, data = self._exchange(method, path, body, kind)
        assert status < 300, (method, path, data)
        return json.loads(data)

    def _exchange(
        self, method: str, path: str, body: object = None, kind: str = ""
    ) -> tuple[int, bytes]:
        headers = {
            "Authorization": f"Bearer {ADMIN.token}",
            "Content-Type": kind or "application/json",
        }
        self._wire.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._wire.getresponse()
        return answer.status, answer.read()

    @contextmanager
    def refusing_binds_to(self, name: str) -> Iterator[None]:
        """Let the API server refuse every bind to a node."""
        policy, in_force = refusal_of_binds(name)
        self.send("POST", POLICIES, policy)
        self.send("POST", POLICY_BINDINGS, in_force)
        probe = make_pod("probe").merge({"spec": {"schedulerName": "nobody"}})
        self.create(probe)
        to_node = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "probe"}}
        bind = {**to_node, "target": {"kind": "Node", "name": name}}
        path = f"{PODS}/probe/binding?dryRun=All"
        until(lambda: self._exchange("POST", path, bind)[0] >= 400, "the policy is in force")
        try:
            yield
        finally:
            self.send("DELETE", f"{POLICY_BINDINGS}/{in_force['metadata']['name']}")
            self.send("DELETE", f"{POLICIES}/{policy['metadata']['name']}")

    def add_node(self, name: str, cpu: int = 4, **labels: str) -> None:
        one = node(0)
        one["metadata"]["name"] = name
        one["metadata"]["labels"] |= {HOSTNAME: name, **labels}
        one["status"]["capacity"] |= {"cpu": str(cpu)}
        one["status"]["allocatable"] |= {"cpu": str(cpu)}
        self.send("POST", NODES, one)

    def create(self, *pods: PodBuilder) -> None:
        for pod in pods:
            self.send("POST", PODS, pod.to_dict())

    def create_group(self, gang: Gang) -> None:
        for one in gang.objects():
            self.send("POST", self.path(gang), one)

    def path(self, gang: Gang) -> str:
        return KINDS[gang.dialect].resource.path("default")

    def status(self, gang: Gang) -> dict[str, Any]:
        found: dict[str, Any] = self.send("GET", f"{self.path(gang)}/{gang.name}").get("status", {})
        return found

    def pods(self) -> dict[str, Any]:
        return {one["metadata"]["name"]: one for one in self.send("GET", PODS)["items"]}

    def bound(self, gang: Gang) -> int:
        pods = self.pods()
        names = [name.partition("/")[2] for name in gang.names]
        return sum(name in pods and bool(pods[name]["spec"].get("nodeName")) for name in names)

    def binds(self, code: int, since: int) -> list[str]:
        """The pods of ksched's binds that were answered so, after the first in the audit log."""
        found = [one for one in self.audit.binds()[since:] if one.user == KSCHED.name]
        return [one.pod.rpartition("/")[2] for one in found if one.code == code]

    def node_of(self, name: str) -> str:
        found: str = self.pods()[name]["spec"].get("nodeName", "")
        return found

    def message(self, name: str) -> str:
        conditions = self.pods()[name]["status"].get("conditions") or []
        return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")

    def set_phase(self, name: str, phase: str) -> None:
        self.send("PATCH", f"{PODS}/{name}/status", {"status": {"phase": phase}}, MERGE)

    def clear(self) -> None:
        self.send("DELETE", f"{PODS}{NOW}")
        for kind in KINDS.values():
            path = kind.resource.path("default")
            for one in self.send("GET", path)["items"]:
                # Nothing here takes away the finalizer that the API server adds.
                name = one["metadata"]["name"]
                self.send("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, MERGE)
                self.send("DELETE", f"{path}/{name}")
        self.send("DELETE", NODES)


@pytest.fixture(scope="module")
def plane(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("gangs")
    audit = AuditLog(folder)
    with ControlPlane.running(folder / "plane", assets, [*GATES, *audit.flags]) as running:
        for name in ("rbac.yaml", "rbac-gangs.yaml", "crd-podgroups.yaml"):
            running.kubectl("apply", "-f", str(CONFIG / name))
        running.kubectl("wait", "--for=condition=Established", "crd/podgroups.scheduling.x-k8s.io")
        site = Site(running, audit)
        yield site
        site.close()


@pytest.fixture(scope="module")
def ksched(plane: Site) -> Iterator[tuple[ChildProcess, str]]:
    [port] = free_ports(1)
    flags = [f"--secure-port={port}", "--insecure-loopback"]
    with plane.plane.ksched(flags=flags, config={"profiles": PROFILE}) as running:
        yield running, f"http://{HOST}:{port}"


@pytest.fixture
def site(plane: Site, ksched: tuple[ChildProcess, str]) -> Iterator[Site]:
    yield plane
    plane.clear()


@every_dialect
def test_01_of_two_gangs_one_is_placed_whole_and_the_other_holds_nothing(
    site: Site, dialect: str
) -> None:
    for number in range(2):
        site.add_node(f"n{number}")
    a, b = Gang(dialect, "a", 8), Gang(dialect, "b", 8)
    site.create_group(a)
    site.create_group(b)
    for one, other in zip(a.pods(), b.pods(), strict=True):
        site.create(one, other)
    until(lambda: site.bound(a) + site.bound(b) == 8, "one of them is placed")
    assert sorted([site.bound(a), site.bound(b)]) == [0, 8]
    winner, loser = (a, b) if site.bound(a) else (b, a)
    until(lambda: "0 of 8 fit" in site.message(f"{loser.name}-0"), "the other says why not")
    for name in winner.names:
        site.send("DELETE", f"{PODS}/{name.partition('/')[2]}{NOW}")
    until(lambda: site.bound(loser) == 8, "the other has its turn")


@every_dialect
def test_03_a_gang_larger_than_the_cluster_waits_without_work(
    site: Site, ksched: tuple[ChildProcess, str], dialect: str
) -> None:
    for number in range(5):
        site.add_node(f"n{number}")
    gang = Gang(dialect, "big", 8, cpu="4")
    site.create_group(gang)
    site.create(*gang.pods())
    told = "pod group is unschedulable, 5 of 8 fit; short of 3 × 4 cpu"
    until(lambda: site.message("big-0") == told, "it says what it lacks")
    if dialect == "in-tree":
        conditions = until(lambda: site.status(gang).get("conditions"), "the PodGroup says so too")
        [one] = [one for one in conditions if one["type"] == "PodGroupScheduled"]
        assert (one["status"], one["reason"]) == ("False", "Unschedulable")
        assert one["message"] == "5 of 8 fit; short of 3 × 4 cpu"
    elif dialect == "scheduler-plugins":
        until(lambda: site.status(gang).get("phase") == "Scheduling", "the PodGroup has its phase")
    site.create(make_pod("single").req(cpu="2"))
    until(lambda: site.node_of("single"), "a pod beside it is placed")
    before = cpu_seconds(ksched[0])
    time.sleep(2)
    assert cpu_seconds(ksched[0]) - before < 0.4, "it is tried again and again"
    assert site.bound(gang) == 0


@every_dialect
def test_13_after_the_loss_of_a_node_its_members_are_replaced_and_the_others_stay(
    site: Site, dialect: str
) -> None:
    for number in range(2):
        site.add_node(f"n{number}")
    gang = Gang(dialect, "train", 8)
    site.create_group(gang)
    site.create(*gang.pods())
    until(lambda: site.bound(gang) == 8, "the gang is placed")
    pods = site.pods()
    lost = [name for name, pod in pods.items() if pod["spec"]["nodeName"] == "n1"]
    kept = {name: pod["metadata"]["uid"] for name, pod in pods.items() if name not in lost}
    site.send("DELETE", f"{NODES}/n1")
    for name in lost:
        site.send("DELETE", f"{PODS}/{name}{NOW}")
    again = [gang.pod(name.rpartition("-")[2]) for name in lost]
    site.create(*again)
    until(lambda: "fit" in site.message(lost[0]), "there is no room for the replacements")
    site.add_node("n2")
    until(lambda: site.bound(gang) == 8, "the replacements are placed")
    after = site.pods()
    assert {site.node_of(name) for name in lost} == {"n2"}
    assert {name: after[name]["metadata"]["uid"] for name in kept} == kept


@every_dialect
def test_13_members_that_are_being_bound_to_a_lost_node_are_placed_again_alone(
    site: Site, ksched: tuple[ChildProcess, str], dialect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    site.add_node("kept", cpu=5)
    site.add_node("lost", cpu=3)
    gang, later = Gang(dialect, "train", 8), Gang(dialect, "later", 3)
    for one in (gang, later):
        site.create_group(one)
    before = len(site.audit.binds())
    with site.refusing_binds_to("lost"):
        site.create(*gang.pods())
        until(lambda: len(site.binds(201, before)) == 5, "five members are bound")
        until(lambda: len({*site.binds(422, before)}) == 3, "the others are being bound")
        names = [name.partition("/")[2] for name in gang.names]
        known = {name: pod for name, pod in site.pods().items() if name in names}
        late = [name for name, pod in known.items() if not pod["spec"].get("nodeName")]
        assert len(late) == 3
        site.send("DELETE", f"{NODES}/lost")
        told = "0 of 3 fit; short of 3 × 1 cpu"
        until(lambda: all(told in site.message(name) for name in late), "there is no room")
        site.create(*later.pods())
        until(lambda: told in site.message("later-0"), "nor for another gang")
        # The backoff of either, so that both may be tried when there is room.
        time.sleep(5)
        assert execute(["groups", "train", "--server", ksched[1]]) == 0
        shown = capsys.readouterr().out
        assert "default/train: broken" in shown
        assert f"5 of 8 are on nodes; the others wait: {told}" in shown
        site.add_node("new", cpu=3)
        until(lambda: site.bound(gang) == 8, "the three are placed")
    after = site.pods()
    assert {after[name]["spec"]["nodeName"] for name in late} == {"new"}
    assert {after[name]["spec"]["nodeName"] for name in names} == {"kept", "new"}
    for name in names:
        assert after[name]["metadata"]["uid"] == known[name]["metadata"]["uid"]
    done = until(lambda: (done := site.binds(201, before))[7:] and done, "the audit log has them")
    assert sorted(done) == sorted(names), "a member was bound twice, or another gang came first"


@pytest.mark.parametrize("dialect", ["annotations", "in-tree"])
def test_26_the_only_rack_with_room_is_taken_and_a_replacement_waits_for_it(
    site: Site, dialect: str
) -> None:
    for rack, nodes in (("a", 1), ("b", 2)):
        for number in range(nodes):
            site.add_node(f"{rack}{number}", rack=rack)
    gang = Gang(dialect, "train", 8, minimum=8, topology="rack")
    site.create_group(gang)
    site.create(*gang.pods())
    until(lambda: site.bound(gang) == 8, "the gang is placed")
    assert {site.node_of(name.partition("/")[2])[0] for name in gang.names} == {"b"}
    site.send("DELETE", f"{PODS}/train-0{NOW}")
    site.create(make_pod("other").req(cpu="1").node_selector(rack="b"))
    until(lambda: site.node_of("other") != "", "another pod takes its place")
    gang.size = 9
    site.create(gang.pod(8))
    told = "pod group is unschedulable, 0 of 1 fit in one domain of rack, 1 domain"
    until(lambda: told in site.message("train-8"), "the replacement stays out of rack a")
    site.send("DELETE", f"{PODS}/other{NOW}")
    until(lambda: site.node_of("train-8") != "", "the replacement is placed")
    assert site.node_of("train-8")[0] == "b"


@every_dialect
def test_33_a_replacement_starts_after_the_others_have_succeeded(site: Site, dialect: str) -> None:
    site.add_node("n0")
    gang = Gang(dialect, "job", 4)
    site.create_group(gang)
    site.create(*gang.pods())
    until(lambda: site.bound(gang) == 4, "the gang is placed")
    for number in range(3):
        site.set_phase(f"job-{number}", "Succeeded")
    site.set_phase("job-3", "Failed")
    site.create(gang.pod("3-again"))
    until(lambda: site.node_of("job-3-again"), "the replacement is placed")
    if dialect == "scheduler-plugins":
        site.set_phase("job-3-again", "Running")
        wanted = ("Running", 3, 1)

        def told() -> bool:
            now = site.status(gang)
            return (now.get("phase"), now.get("succeeded"), now.get("running")) == wanted

        until(told, "the PodGroup counts them")
        site.set_phase("job-3-again", "Succeeded")
        until(lambda: site.status(gang)["phase"] == "Finished", "the PodGroup is done")


@every_dialect
def test_38_single_pods_do_not_wait_behind_hopeless_gangs(site: Site, dialect: str) -> None:
    for number in range(4):
        site.add_node(f"n{number}", cpu=8)
    alone = _latencies(site, "alone", 20)
    for number in range(40):
        gang = Gang(dialect, f"g{number}", 5, cpu="8")
        site.create_group(gang)
        site.create(*gang.pods())
    until(lambda: "of 5 fit" in site.message("g39-0"), "the last of the gangs was tried")
    beside = _latencies(site, "beside", 20)
    # On a shared machine; each takes some milliseconds, and took seconds where gangs are retried.
    assert beside[-1] < max(5 * alone[-1], 1.0), (alone, beside)


def _latencies(site: Site, name: str, count: int) -> list[float]:
    """Seconds from creation to bind of pods that come one by one."""
    found = []
    for number in range(count):
        began = time.monotonic()
        site.create(make_pod(f"{name}-{number}").req(cpu="100m"))
        path = f"{PODS}/{name}-{number}"
        until(lambda path=path: site.send("GET", path)["spec"].get("nodeName"), path)  # type: ignore[misc]
        found.append(time.monotonic() - began)
        site.send("DELETE", f"{path}{NOW}")
    return sorted(found)


def cpu_seconds(process: ChildProcess) -> float:
    """User and system time so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_14_a_gang_whose_scheduler_was_killed_between_two_binds_is_completed(plane: Site) -> None:
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    plane.add_node("n0", cpu=1000)
    cuts = 0
    try:
        for number in range(ROUNDS):
            gang = Gang(DIALECTS[number % len(DIALECTS)], f"cut{number}", 12)
            cuts += kill_between_binds(plane, gang, rng.randint(1, 6))
        done = [one.pod for one in plane.audit.binds() if one.code == 201]
        binds = [pod for pod in done if pod.rpartition("/")[2].startswith("cut")]
        assert len(binds) == len(set(binds)) == ROUNDS * 12, f"bound twice, seed {seed}"
        assert cuts, f"no kill met a gang between two binds, seed {seed}"
    finally:
        plane.clear()


def kill_between_binds(plane: Site, gang: Gang, wanted: int) -> bool:
    """Kill a scheduler after so many binds; whether its gang was cut, which the next completes."""
    # So few requests per second that the binds take a while.
    connection = {"kubeconfig": str(plane.plane.kubeconfig("ksched")), "qps": 40, "burst": 1}
    profiles = [{**PROFILE[0], "schedulerName": "second"}]
    config = {"profiles": profiles, "clientConnection": connection}
    plane.create_group(gang)
    plane.create(*(pod.merge({"spec": {"schedulerName": "second"}}) for pod in gang.pods()))
    with plane.plane.ksched("second", config=config) as first:
        until(lambda: plane.bound(gang) >= wanted, f"{wanted} members are bound")
        first.kill()
    was_cut = plane.bound(gang) < gang.size
    with plane.plane.ksched("second", config=config):
        until(lambda: plane.bound(gang) == gang.size, "the next scheduler completes the gang")
    return was_cut


def test_what_users_see_of_the_examples(
    site: Site, ksched: tuple[ChildProcess, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifests are applied with kubectl; nobody but the test makes the pods of their Jobs."""
    site.add_node("n0", cpu=8)
    for dialect, name in (
        ("annotations", "annotations"),
        ("in-tree", "kubernetes"),
        ("scheduler-plugins", "scheduler-plugins"),
    ):
        file = CONFIG / "examples" / "gangs" / f"{name}.yaml"
        site.plane.kubectl("apply", "-f", str(file))
        [job] = [one for one in yaml.safe_load_all(file.read_text()) if one["kind"] == "Job"]
        for number in range(4):
            pod = dict(job["spec"]["template"])
            pod["metadata"] = {**pod.get("metadata", {}), "name": f"train-{number}"}
            site.send("POST", PODS, {"apiVersion": "v1", "kind": "Pod", **pod})
        until(lambda: all(site.node_of(f"train-{n}") for n in range(4)), f"{name} is placed")
        assert execute(["groups", "train", "--server", ksched[1]]) == 0
        shown = capsys.readouterr().out
        assert "default/train: placed" in shown
        assert f"marked by  {dialect}" in shown
        if dialect == "in-tree":
            told = until(
                lambda: site.plane.kubectl(
                    *("get", "podgroups.v1alpha2.scheduling.k8s.io", "train", "-o"),
                    "jsonpath={.status.conditions[*].type}={.status.conditions[*].status}",
                ).strip("="),
                "kubectl shows the condition",
            )
            assert told == "PodGroupScheduled=True"
        if dialect == "scheduler-plugins":
            until(
                lambda: "Scheduling" in site.plane.kubectl("get", "podgroups.scheduling.x-k8s.io"),
                "kubectl shows the phase",
            )
        site.send("DELETE", f"{PODS}{NOW}")
        site.send("DELETE", f"{JOBS}/train", {"propagationPolicy": "Background"})


def test_the_shipped_roles_are_enough(site: Site) -> None:
    assert site.audit.refusals() == []
