"""kube-scheduler and ksched with the same extender: the same questions and the same decisions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.child_process import ChildProcess
from lab.control_plane import ADMIN, ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"
FPGA = "example.com/fpga"
VERBS = ("filter", "prioritize", "bind", "preempt")
POLICY = {
    "failed": {"n1": "no fpga"},
    "unresolvable": {"n2": "no slot"},
    "scores": {"n3": 1, "n4": 9, "n5": 5},
    "preempt": ["n5"],
}
NO_CLAIMS = "no new claims to deallocate, "
"""What DynamicResources, which ksched has not, says of every pod that cannot preempt."""
Start = Callable[..., ChildProcess]


def node(name: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {"example.com/note": "cheap & <fast>"},
        },
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": f"cloud://{name}"},
    }


STATUS = {
    "capacity": {"cpu": "2", "memory": "8Gi", "pods": "110", FPGA: "0"},
    "allocatable": {"cpu": "2", "memory": "8Gi", "pods": "110", FPGA: "0"},
    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    "images": [{"names": ["registry.example/web:v1"], "sizeBytes": 12345678}],
}


def pod(name: str, priority_class: str, resource: str = FPGA) -> dict[str, Any]:
    resources = {"requests": {"cpu": "1"}, "limits": {resource: "1"} if resource else {}}
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "priorityClassName": priority_class,
            # There is no kubelet to finish a deletion.
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "web",
                    "image": "registry.example/web:v1",
                    "command": ["sh", "-c", "test 1 -lt 2 && echo '>ok<'"],
                    "resources": resources,
                }
            ],
        },
    }


@pytest.fixture
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    control_plane.kubectl("apply", "-f", str(RBAC))
    for number in range(1, 6):
        assert control_plane.request("POST", NODES, node(f"n{number}")).status == 201
        status = {"status": STATUS}
        path, kind = f"{NODES}/n{number}/status", "application/merge-patch+json"
        assert control_plane.request("PATCH", path, status, content_type=kind).status == 200
    for priority in (*range(6), 1000):
        body = {"metadata": {"name": f"p{priority}"}, "value": priority}
        assert control_plane.request("POST", CLASSES, body).status == 201
    yield control_plane
    control_plane.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
    control_plane.request("DELETE", NODES)
    for priority in (*range(6), 1000):
        control_plane.request("DELETE", f"{CLASSES}/p{priority}")


def decide(plane: ControlPlane, name: str, is_decided: Callable[[Any], Any]) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = plane.request("GET", f"{PODS}/{name}").body
        if is_decided(found):
            return found
        time.sleep(0.05)
    raise AssertionError(f"{name} was not decided: {found}")


def is_bound(found: Any) -> bool:
    return bool(found["spec"].get("nodeName"))


def is_rejected(found: Any) -> bool:
    return any(one["status"] == "False" for one in found["status"].get("conditions", ()))


def tell(plane: ControlPlane) -> dict[str, Any]:
    """Put the scheduler before every kind of decision and write down what it decides."""
    story: dict[str, Any] = {}
    for number in range(6):
        name = f"web-{number}"
        assert plane.request("POST", PODS, pod(name, f"p{number}")).status == 201
        story[name] = decide(plane, name, is_bound)["spec"]["nodeName"]
    assert plane.request("POST", PODS, pod("late", "p0")).status == 201
    late = decide(plane, "late", is_rejected)["status"]["conditions"][0]
    story["late"] = late["reason"], late["message"].replace(NO_CLAIMS, "")
    plane.request("DELETE", f"{PODS}/late?gracePeriodSeconds=0")
    # The extender does not manage what this one asks for.
    assert plane.request("POST", PODS, pod("plain", "p0", "")).status == 201
    assert decide(plane, "plain", is_bound)["spec"]["nodeName"] in ("n1", "n2")
    assert plane.request("POST", PODS, pod("vip", "p1000")).status == 201
    story["vip"] = decide(plane, "vip", is_bound)["spec"]["nodeName"]
    left = plane.request("GET", PODS).body["items"]
    story["left"] = sorted(one["metadata"]["name"] for one in left)
    plane.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
    return story


DROPPED = (
    # These differ between any two pods of the same name.
    "resourceVersion",
    "creationTimestamp",
    "lastTransitionTime",
    # kube-scheduler sends these of nodes, though not of pods.
    "managedFields",
)


def comparable(value: Any) -> Any:
    """A question without what may differ."""
    if isinstance(value, list):
        return [comparable(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: comparable(one) for name, one in value.items() if name not in DROPPED}


def without_known_nodes(question: Any, known: set[str]) -> Any:
    """A question about the nodes only that were not asked about before, in order.

    Under load either scheduler may try a pod again while its victims are still there, and then asks
    the same once more.
    """
    asked_about: set[str] = set()
    if question.get("Nodes"):
        nodes = {one["metadata"]["name"]: one for one in question["Nodes"]["items"]}
        question["Nodes"]["items"] = [nodes[one] for one in sorted(nodes.keys() - known)]
        asked_about |= nodes.keys()
    if question.get("NodeNames"):
        asked_about |= {*question["NodeNames"]}
        question["NodeNames"] = sorted(asked_about - known)
    is_old = asked_about and asked_about <= known
    known |= asked_about
    return None if is_old else question


def asked(extender: Any) -> dict[str, list[Any]]:
    """Distinct questions by verb and pod; how often a waiting pod is tried again does not count."""
    found: dict[str, list[Any]] = {}
    known: dict[str, set[str]] = {}
    names: dict[str, str] = {}
    for verb in VERBS:
        for body in extender.requests(verb):
            question = json.loads(body)
            if verb == "bind":
                name = question["PodName"]
            else:
                name = question["Pod"]["metadata"]["name"]
                names[question["Pod"]["metadata"]["uid"]] = name
            question = comparable(question)
            for race in ("conditions", "nominatedNodeName"):
                # Whether a second attempt sees what the first one wrote.
                question.get("Pod", {}).get("status", {}).pop(race, None)
            what = f"{verb} {name}"
            question = without_known_nodes(question, known.setdefault(what, set()))
            questions = found.setdefault(what, [])
            if question is not None and question not in questions:
                questions.append(question)
    text = json.dumps(found)
    for uid, name in names.items():
        text = text.replace(uid, f"uid of {name}")
    renamed: dict[str, list[Any]] = json.loads(text)
    return renamed


@pytest.mark.parametrize("is_capable", [False, True], ids=["whole objects", "names and uids"])
def test_same_questions_and_same_decisions(plane, go_extender, is_capable) -> None:
    flags = ("-server", plane.url, "-token", ADMIN.token, "-ca", str(plane.ca_file))
    starts: dict[str, Start] = {"kube-scheduler": plane.kube_scheduler, "ksched": plane.ksched}
    stories, questions = {}, {}
    for name, start in starts.items():
        with go_extender(POLICY, *flags) as extender:
            one = {
                "urlPrefix": f"http://{extender.address}/scheduler/",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 10,
                "bindVerb": "bind",
                "preemptVerb": "preempt",
                "nodeCacheCapable": is_capable,
                "managedResources": [{"name": FPGA, "ignoredByScheduler": True}],
            }
            with start(f"{name}-{is_capable}", config={"extenders": [one]}):
                stories[name] = tell(plane)
            questions[name] = asked(extender)

    assert stories["ksched"] == stories["kube-scheduler"]
    ours, theirs = questions["ksched"], questions["kube-scheduler"]
    assert ours.keys() == theirs.keys()
    for what, theirs_of_one in theirs.items():
        assert ours[what] == theirs_of_one, what
    assert {what.split()[0] for what in ours} == set(VERBS)
