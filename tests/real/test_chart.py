"""The Helm chart of config/chart: what it installs is what the kustomize overlays install."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ksched.configuration import load_config
from lab.assets import HELM, KUBERNETES_VERSION, Assets, locate
from lab.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CONFIG = Path(__file__).parents[2] / "config"
CHART = CONFIG / "chart"
TEMPLATE = ("template", "ksched", CHART, "--kube-version", KUBERNETES_VERSION)
"""Without a server helm does not know for which version to render."""
SAME = [
    pytest.param("values.yaml", "base", id="beside"),
    pytest.param("values-instead.yaml", "overlays/instead", id="instead"),
    pytest.param("values-three-replicas.yaml", "overlays/three-replicas", id="three replicas"),
]

Json = dict[str, Any]
Objects = dict[tuple[str, str], Json]


@pytest.fixture(scope="module")
def helm(tmp_path_factory) -> Any:
    program = locate(HELM)
    if program is None:
        pytest.skip("helm not found: run make helm, or set TEST_ASSET_HELM")
    folder = tmp_path_factory.mktemp("helm")
    # Its caches would be shared with the person who runs the tests.
    environ = {"HOME": str(folder)}

    def run(*arguments: str | Path, fails: bool = False) -> str:
        command = [program, *arguments, "--namespace", "kube-system"]
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, check=False, timeout=120
        )
        assert bool(done.returncode) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run


@pytest.fixture(scope="module")
def plane(helm, assets: Assets, tmp_path_factory) -> Iterator[ControlPlane]:
    with ControlPlane.running(tmp_path_factory.mktemp("plane"), assets) as running:
        yield running


def by_name(text: str) -> Objects:
    """The objects of a manifest; the text of the configuration is replaced by what it says."""
    found = [one for one in yaml.safe_load_all(text) if one]
    objects = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(objects) == len(found)
    data = objects["ConfigMap", "ksched"]["data"]
    data["config.yaml"] = load_config(data["config.yaml"])
    return objects


@pytest.mark.parametrize(("values", "overlay"), SAME)
def test_the_chart_is_the_overlay(helm, plane: ControlPlane, values: str, overlay: str) -> None:
    rendered = by_name(helm(*TEMPLATE, "--values", CHART / values))
    wanted = by_name(plane.kubectl("kustomize", str(CONFIG / overlay)))

    assert rendered.keys() == wanted.keys()
    for key, obj in wanted.items():
        assert rendered[key] == obj, key


@pytest.mark.parametrize(("values", "overlay"), SAME)
def test_helm_finds_nothing_to_complain_about(helm, values: str, overlay: str) -> None:
    helm("lint", "--strict", "--quiet", CHART, "--values", CHART / values)


def test_installed_upgraded_and_removed(helm, plane: ControlPlane) -> None:
    kubeconfig = ("--kubeconfig", plane.kubeconfig())
    helm("install", "ksched", CHART, *kubeconfig)
    assert replicas(plane) == 2
    more = ("--set", "replicas=5", "--set", "gangs.enabled=true", "--set", "mode=instead")
    helm("upgrade", "ksched", CHART, *kubeconfig, *more)
    assert replicas(plane) == 5
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/ksched-gangs"
    assert plane.request("GET", path).status == 200
    helm("uninstall", "ksched", *kubeconfig)
    assert plane.request("GET", path).status == 404


def replicas(plane: ControlPlane) -> int:
    path = "/apis/apps/v1/namespaces/kube-system/deployments/ksched"
    return int(plane.request("GET", path).body["spec"]["replicas"])


def test_values_reach_the_manifests(helm) -> None:
    sets = (
        *("image.repository=registry.example/ksched", "image.tag=v1", "image.pullPolicy=Always"),
        *("flags[0]=--v=2", "configuration.parallelism=4", "image.pullSecrets[0].name=key"),
    )
    flags = [part for one in sets for part in ("--set", one)]

    objects = by_name(helm(*TEMPLATE, *flags))

    pod = objects["Deployment", "ksched"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/ksched:v1"
    assert container["imagePullPolicy"] == "Always"
    assert container["command"][-1] == "--v=2"
    assert pod["imagePullSecrets"] == [{"name": "key"}]
    config = objects["ConfigMap", "ksched"]["data"]["config.yaml"]
    assert (config.parallelism, config.leader_election.resource_name) == (4, "ksched")


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        pytest.param(("--set", "mode=besides"), "mode", id="no such mode"),
        pytest.param(("--set", "replica=3"), "replica", id="no such value"),
    ],
)
def test_mistakes_are_named(helm, flags: tuple[str, str], complaint: str) -> None:
    assert complaint in helm(*TEMPLATE, *flags, fails=True)
