"""``ksched run`` as a process on a real API server, under the role of config/rbac.yaml."""

from __future__ import annotations

import itertools
import json
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.workloads import HOSTNAME, node, pod
from lab.assets import Assets
from lab.audit_log import AuditLog, Refusal
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"
MERGE = "application/merge-patch+json"
NOW = "?gracePeriodSeconds=0"
PATIENCE_SECONDS = 60.0
NUMBERS = itertools.count()
# A restart of the API server must not cost the lease.
ELECTION = {
    "leaderElection": {
        "leaderElect": True,
        "resourceName": "ksched",
        "leaseDuration": "60s",
        "renewDeadline": "50s",
        "retryPeriod": "1s",
    }
}


class Site:
    """A cluster on which ksched schedules, and what the API server noted about it."""

    def __init__(self, plane: ControlPlane, audit: AuditLog, ksched: ChildProcess) -> None:
        self.plane, self.audit, self.ksched = plane, audit, ksched
        self._began, self._restarts = time.time(), list[tuple[float, float]]()

    def create(self, path: str, obj: dict[str, Any]) -> None:
        answer = self.plane.request("POST", path, obj)
        assert answer.status == 201, answer.body

    def pods(self) -> dict[str, Any]:
        items = self.plane.request("GET", PODS).body["items"]
        return {item["metadata"]["name"]: item for item in items}

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a condition while ksched runs."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := condition()):
            assert time.monotonic() < deadline, f"{what}: {self.ksched.log()[-3000:]}"
            self.ksched.must_run(0.05)
        return found

    def until_bound(self, names: list[str]) -> dict[str, str]:
        """Wait until these pods have nodes; which."""

        def nodes() -> dict[str, str] | None:
            pods = self.pods()
            found = {name: pods[name]["spec"].get("nodeName", "") for name in names}
            return found if all(found.values()) else None

        found: dict[str, str] = self.until(nodes, f"{len(names)} pods have nodes")
        return found

    def restart_apiserver(self) -> None:
        """Have the API server crash and come back."""
        crashed_at = time.time()
        self.plane.kill_apiserver()
        self.plane.start_apiserver()
        self._restarts.append((crashed_at, time.time()))

    def check(self) -> None:
        """What must be true however the API server was treated."""
        counts = Counter(bind.pod for bind in self.audit.binds() if bind.code == 201)
        assert [name for name, count in counts.items() if count > 1] == []
        assert [bind for bind in self.audit.binds() if bind.code == 409] == []
        assert self.audit.problems() == []
        assert [each for each in self.audit.refusals() if self._is_of_the_role(each)] == []
        assert self._restarts or "forbidden" not in self.ksched.log().lower()

    def _is_of_the_role(self, refusal: Refusal) -> bool:
        """A server that has just started answers before it has read its roles."""
        is_now = refusal.at >= self._began
        return is_now and not any(crash < refusal.at < ready for crash, ready in self._restarts)


@pytest.fixture(scope="module")
def audited(
    assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ControlPlane, AuditLog]]:
    folder = tmp_path_factory.mktemp("audited")
    audit = AuditLog(folder / "audit", "ksched")
    with ControlPlane.running(folder, assets, audit.flags) as plane:
        plane.kubectl("apply", "-f", str(RBAC))
        yield plane, audit


@pytest.fixture
def site(audited: tuple[ControlPlane, AuditLog], request: pytest.FixtureRequest) -> Iterator[Site]:
    plane, audit = audited
    for index in range(5):
        assert plane.request("POST", NODES, node(index)).status == 201
    with plane.ksched(request.node.name, flags=["-v=2"], config=ELECTION) as ksched:
        site = Site(plane, audit, ksched)
        site.until(lambda: '"became leader"' in ksched.log(), "ksched leads")
        yield site
    for path in (PODS, NODES, EVENTS):
        assert plane.request("DELETE", f"{path}{NOW}").status == 200
    assert ksched.exit_code == 0, ksched.log()[-3000:]
    site.check()


def create_pods(site: Site, count: int) -> list[str]:
    """Create pods of names that no test had before: the audit log knows pods by name."""
    made = [pod(number, "basic") for number in itertools.islice(NUMBERS, count)]
    for each in made:
        site.create(PODS, each)
    return [each["metadata"]["name"] for each in made]


# -- its own role -------------------------------------------------------------------------------


def test_places_pods_and_says_so(site: Site) -> None:
    names = create_pods(site, 40)

    nodes = site.until_bound(names)

    assert set(nodes.values()) == {node(index)["metadata"]["name"] for index in range(5)}
    by_user = Counter(bind.user for bind in site.audit.binds() if bind.pod in names)
    assert by_user == {"system:serviceaccount:kube-system:ksched": 40}

    def told() -> bool:
        events = site.plane.request("GET", EVENTS).body["items"]
        scheduled = {e["regarding"]["name"] for e in events if e["reason"] == "Scheduled"}
        return scheduled >= set(names)

    site.until(told, "every pod has its event")


def test_makes_room_for_what_is_more_important(site: Site) -> None:
    """The role covers preemption: victims are deleted, the pod is nominated, then bound."""
    priority_class = {"metadata": {"name": "important"}, "value": 1000}
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    site.create(classes, priority_class)
    try:
        big = [sized(f"big-{number}", "20") for number in range(5)]
        for each in big:
            site.create(PODS, each)
        site.until_bound([each["metadata"]["name"] for each in big])

        site.create(PODS, sized("important", "20", priorityClassName="important"))

        def victims() -> list[Any]:
            pods = site.pods().values()
            return [one for one in pods if one["metadata"].get("deletionTimestamp")]

        [victim] = site.until(victims, "somebody is evicted")
        assert [
            c["reason"] for c in victim["status"]["conditions"] if c["type"] == "DisruptionTarget"
        ]
        name, place = victim["metadata"]["name"], victim["spec"]["nodeName"]
        nominated = site.pods()["important"]["status"].get("nominatedNodeName")
        # There is no kubelet that ends the victim.
        assert site.plane.request("DELETE", f"{PODS}/{name}{NOW}").status == 200
        assert site.until_bound(["important"]) == {"important": place}
        assert nominated in (place, None)
    finally:
        site.plane.request("DELETE", f"{classes}/important")


def test_chooses_a_volume_for_a_claim(site: Site) -> None:
    """The role covers volumes; the test plays the controller that completes the binding."""
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    volumes = "/api/v1/persistentvolumes"
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    made = {
        classes: local_class("local"),
        volumes: local_volume("disk", node(3)["metadata"]["name"]),
        claims: claim("data", "local"),
    }
    try:
        for path, obj in made.items():
            site.create(path, obj)
        set_phase(site.plane, f"{volumes}/disk", "Available")
        user = sized("user", "1")
        source = {"persistentVolumeClaim": {"claimName": "data"}}
        user["spec"]["volumes"] = [{"name": "data", **source}]
        site.create(PODS, user)

        def promised() -> Any:
            return site.plane.request("GET", f"{volumes}/disk").body["spec"].get("claimRef")

        assert site.until(promised, "the volume is promised")["name"] == "data"
        complete_binding(site.plane, f"{claims}/data", f"{volumes}/disk")

        assert site.until_bound(["user"]) == {"user": node(3)["metadata"]["name"]}
    finally:
        for path, obj in made.items():
            each = f"{path}/{obj['metadata']['name']}"
            # Nobody is there who would take off the protection.
            site.plane.request(
                "PATCH", each, {"metadata": {"finalizers": None}}, content_type=MERGE
            )
            site.plane.request("DELETE", each)


def sized(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "pause:3.9", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def local_class(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def local_volume(name: str, node_name: str) -> dict[str, Any]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node_name]}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": "/mnt/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def claim(name: str, class_name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def complete_binding(plane: ControlPlane, claim_path: str, volume_path: str) -> None:
    done = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    patch = {"metadata": done, "spec": {"volumeName": volume_path.rpartition("/")[2]}}
    assert plane.request("PATCH", claim_path, patch, content_type=MERGE).status == 200
    for path in (claim_path, volume_path):
        set_phase(plane, path, "Bound")


def set_phase(plane: ControlPlane, path: str, phase: str) -> None:
    patch = {"status": {"phase": phase}}
    assert plane.request("PATCH", f"{path}/status", patch, content_type=MERGE).status == 200


# -- what a tenant may create, or a kubelet report ----------------------------------------------


def test_the_largest_request_on_a_node_stops_nobody(site: Site) -> None:
    """Beside another pod the sum of their requests is beyond an int64."""
    place = node(0)["metadata"]["name"]
    greedy = sized("greedy", "1", nodeName=place)
    greedy["spec"]["containers"][0]["resources"]["requests"]["memory"] = "9223372036854775807"
    for each in (sized("beside", "1", nodeName=place), greedy):
        each["spec"]["containers"][0]["resources"]["requests"].setdefault("memory", "1Gi")
        site.create(PODS, each)

    nodes = site.until_bound(create_pods(site, 20))

    assert place not in nodes.values()
    assert "unexpected error" not in site.ksched.log()


def test_a_node_of_absurd_size_is_a_node_like_others(site: Site) -> None:
    path = f"{NODES}/{node(0)['metadata']['name']}/status"
    memory = {"memory": str(2**63 // 99)}
    status = {"status": {"capacity": memory, "allocatable": memory}}
    assert site.plane.request("PATCH", path, status, content_type=MERGE).status == 200

    nodes = site.until_bound(create_pods(site, 40))

    assert set(nodes.values()) == {node(index)["metadata"]["name"] for index in range(5)}


def test_a_pod_nested_as_deep_as_the_api_server_lets_it_be(site: Site) -> None:
    levels: dict[str, Any] = {}
    for _ in range(400):
        levels = {"f:a": levels}
    # JSON of Python's goes no deeper at once.
    fields = json.dumps(levels).replace("{}", "X")
    for _ in range(4):
        fields = fields.replace("X", json.dumps(levels).replace("{}", "X"), 1)
    deep = sized("deep", "1")
    deep["metadata"]["managedFields"] = [
        {
            "manager": "somebody",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": "FIELDS",
        }
    ]
    text = json.dumps(deep).replace('"FIELDS"', fields.replace("X", "{}"))
    site.plane.kubectl("create", "--raw", PODS, "-f", "-", stdin=text)

    others = create_pods(site, 5)

    # kubectl reads it; Python's own JSON does not.
    where = ("get", "pod", "deep", "-o", "jsonpath={.spec.nodeName}")
    site.until(lambda: site.plane.kubectl(*where), "it has a node")
    site.plane.kubectl("delete", "pod", "deep", "--grace-period=0", "--force")
    site.until_bound(others)
    assert "cannot be decoded" not in site.ksched.log()


# -- what happens to API servers ----------------------------------------------------------------


def test_survives_a_crash_of_the_api_server(site: Site) -> None:
    """Binds are under way when the server dies; each pod is bound once all the same."""
    site.ksched.send_signal(signal.SIGSTOP)
    before = create_pods(site, 150)
    site.ksched.send_signal(signal.SIGCONT)
    site.until(lambda: {bind.pod for bind in site.audit.binds()} & {*before}, "the first is bound")
    site.restart_apiserver()
    after = create_pods(site, 60)

    site.until_bound(before + after)


def test_survives_a_compaction_that_outruns_its_watches(site: Site) -> None:
    """Back after a long sleep, its versions are forgotten: it lists anew and misses nothing."""
    early = create_pods(site, 5)
    site.until_bound(early)
    site.ksched.send_signal(signal.SIGSTOP)
    # Its watches end here; otherwise the news would wait for it in its sockets.
    site.restart_apiserver()
    gone, kept = early[0], early[1:]
    assert site.plane.request("DELETE", f"{PODS}/{gone}{NOW}").status == 200
    site.create(NODES, node(5))
    late = create_pods(site, 5)
    site.plane.compact_etcd()
    # The server's own cache remembers longer than etcd, but not a restart.
    site.restart_apiserver()
    site.ksched.send_signal(signal.SIGCONT)

    site.until_bound(kept + late)

    for resource in ("pods", "nodes"):
        assert re.search(rf'resource="{resource}" [^\n]*410 Expired', site.ksched.log())
    # What vanished meanwhile is forgotten, what came is known: SIGUSR2 compares with the server.
    site.ksched.send_signal(signal.SIGUSR2)
    compared = re.compile(r'"cache (agrees|differs|comparison)[^\n]*')
    line = site.until(lambda: compared.search(site.ksched.log()), "the comparison is told")
    assert "agrees" in line[0], line[0]


# -- what people read ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu", "spec", "reason"),
    [
        pytest.param("100", {}, "FailedScheduling", id="no room"),
        pytest.param(
            "1", {"nodeSelector": {"disk": "tape"}}, "FailedScheduling", id="no such node"
        ),
        pytest.param("1", {"schedulingGates": [{"name": "wait"}]}, "", id="gated"),
        pytest.param("1", {"nodeSelector": {HOSTNAME: "node-00002"}}, "Scheduled", id="bound"),
    ],
)
def test_kubectl_describe_reads_as_with_kube_scheduler(
    site: Site, cpu: str, spec: dict[str, Any], reason: str
) -> None:
    with site.plane.kube_scheduler("describe", scheduler_name="theirs"):
        for name, scheduler in (("their-pod", "theirs"), ("ours-pod", "default-scheduler")):
            site.create(PODS, sized(name, cpu, schedulerName=scheduler, **spec))
        theirs, ours = (
            site.until(partial(described, site.plane, name, reason), f"{name} is decided")
            for name in ("their-pod", "ours-pod")
        )

    assert ours.replace("ours-pod", "pod").replace("default-scheduler", "NAME") == theirs.replace(
        "their-pod", "pod"
    ).replace("theirs", "NAME")


def described(plane: ControlPlane, name: str, reason: str) -> str:
    """What kubectl says of a decided pod, without times and column widths."""
    text = plane.kubectl("describe", "pod", name)
    if reason not in text.partition("\nEvents:")[2] or "PodScheduled" not in text:
        return ""
    text = re.sub(r"\b\d+s\b", "AGE", text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())
