"""The manifests of config/ as kubectl renders them, judged by a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ksched.configuration import load_config
from lab.assets import Assets
from lab.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CONFIG = Path(__file__).parents[2] / "config"
OVERLAYS = ("base", "overlays/instead", "overlays/three-replicas")
OPERATOR = "monitoring.coreos.com/v1"
"""Kinds of the Prometheus operator, which this API server does not have."""

Json = dict[str, Any]


@pytest.fixture(scope="module")
def plane(tmp_path_factory) -> Iterator[ControlPlane]:
    with ControlPlane.running(tmp_path_factory.mktemp("plane"), Assets.find()) as running:
        yield running


def rendered(plane: ControlPlane, overlay: str) -> list[Json]:
    return list(yaml.safe_load_all(plane.kubectl("kustomize", str(CONFIG / overlay))))


def the(objects: list[Json], kind: str, name: str) -> Json:
    (found,) = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_accepts_every_object(plane: ControlPlane, overlay: str) -> None:
    objects = rendered(plane, overlay)
    own = [one for one in objects if one["apiVersion"] != OPERATOR]
    plane.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        stdin=yaml.safe_dump_all(own),
    )
    keys = {(one["kind"], one["metadata"]["name"]) for one in objects}
    assert len(keys) == len(objects)
    assert ("Deployment", "ksched") in keys


@pytest.mark.parametrize(
    ("overlay", "lease", "name"),
    [("base", "ksched", "ksched"), ("overlays/instead", "kube-scheduler", "default-scheduler")],
)
def test_the_lease_may_be_held_and_the_name_is_as_told(
    plane: ControlPlane, overlay: str, lease: str, name: str
) -> None:
    objects = rendered(plane, overlay)
    config = load_config(the(objects, "ConfigMap", "ksched")["data"]["config.yaml"])
    assert config.leader_election.resource_name == lease
    assert [profile.scheduler_name for profile in config.profiles] == [name]
    rules = the(objects, "Role", "ksched-leader-election")["rules"]
    assert [rule["resourceNames"] for rule in rules if "resourceNames" in rule] == [[lease]]


def test_three_replicas_are_monitored_and_kept_apart(plane: ControlPlane) -> None:
    objects = rendered(plane, "overlays/three-replicas")
    spec = the(objects, "Deployment", "ksched")["spec"]
    assert spec["replicas"] == 3
    assert the(objects, "PodDisruptionBudget", "ksched")["spec"]["minAvailable"] == 2
    pod = spec["template"]
    port = pod["spec"]["containers"][0]["ports"][0]["name"]
    (endpoint,) = the(objects, "PodMonitor", "ksched")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == port
    policy = the(objects, "NetworkPolicy", "ksched")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert policy["ingress"][0]["ports"] == [{"port": port}]
    secret = the(objects, "Secret", endpoint["bearerTokenSecret"]["name"])
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    assert the(objects, "ClusterRoleBinding", "ksched-metrics")["subjects"][0]["name"] == account


def test_a_static_pod_and_what_kubeadm_makes_of_its_own(plane: ControlPlane) -> None:
    manifest = yaml.safe_load((CONFIG / "static-pod/kube-scheduler.yaml").read_text())
    patch = yaml.safe_load((CONFIG / "static-pod/kube-scheduler+strategic.yaml").read_text())
    plane.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        stdin=yaml.safe_dump(manifest),
    )
    ours, patched = manifest["spec"]["containers"][0], patch["spec"]["containers"][0]
    assert (patched["name"], patched["image"]) == (ours["name"], ours["image"])
    assert patched["command"] == ours["command"]
