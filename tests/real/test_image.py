"""The container image, built on Debian's packages, as two replicas on a real API server.

Needs buildah and mmdebstrap, and is skipped where they are not installed. The replicas run with
the flags of config/deployment.yaml, without the isolation that a cluster adds.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.workloads import node, pod
from lab.assets import Assets
from lab.child_process import ChildProcess
from lab.control_plane import ControlPlane, free_ports
from tools.image import DEBIAN_BASE

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (shutil.which("buildah") and shutil.which("mmdebstrap")),
        reason="buildah and mmdebstrap are not installed",
    ),
]

ROOT = Path(__file__).parents[2]
TAG = "localhost/ksched:test"
PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ksched"
PATIENCE_SECONDS = 60.0
# What pip needs to reach its index, if this machine has its own.
MOUNTED = ("/etc/pip.conf", "/etc/ssl/certs")


def buildah(*arguments: str) -> str:
    done = subprocess.run(
        ["buildah", *arguments], check=True, stdout=subprocess.PIPE, text=True, timeout=300
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    # Works without the kernel's overlays and namespaces, as in a container of a CI.
    changed = {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in changed.items():
            patch.setenv(name, value)
        volumes = [f"--volume {path}:{path}:ro" for path in MOUNTED if Path(path).exists()]
        command = [sys.executable, "tools/image.py", "--base", "debian", "--tag", TAG]
        subprocess.run([*command, "--flags", " ".join(volumes)], check=True, cwd=ROOT)
        yield TAG
        buildah("rmi", "--force", TAG, DEBIAN_BASE)


@pytest.fixture
def plane(tmp_path) -> Iterator[ControlPlane]:
    with ControlPlane.running(tmp_path, Assets.find()) as running:
        running.kubectl("apply", "-f", str(ROOT / "config/rbac.yaml"))
        for number in range(3):
            running.request("POST", "/api/v1/nodes", node(number))
        yield running


def deployment_flags(plane: ControlPlane, port: int) -> list[str]:
    """The flags of the deployment, with the files and the port of this test."""
    config_map, deployment, _ = yaml.safe_load_all((ROOT / "config/deployment.yaml").read_text())
    file = plane.folder / "config.yaml"
    file.write_text(config_map["data"]["config.yaml"])
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    flags = [
        flag
        for flag in container["command"]
        if not flag.startswith(("--config", "--secure-port", "--bind-address"))
    ]
    own = (f"--config={file}", f"--secure-port={port}", "--bind-address=127.0.0.1")
    return [*flags, *own]


def replica(plane: ControlPlane, name: str, port: int) -> ChildProcess:
    container = buildah("from", TAG)
    options = (
        f"--volume={plane.folder}:{plane.folder}:ro",
        f"--env=KUBECONFIG={plane.kubeconfig('ksched')}",
    )
    command = ["buildah", "run", *options, container, "--", *deployment_flags(plane, port)]
    return ChildProcess(name, command, plane.folder / f"{name}.log")


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.1)
    return found


def is_bound(plane: ControlPlane, name: str) -> bool:
    return bool(plane.request("GET", f"{PODS}/{name}").body["spec"].get("nodeName"))


def test_two_replicas_schedule_and_one_takes_over(image: str, plane: ControlPlane) -> None:
    container = buildah("from", image)
    assert buildah("run", container, "--", "id", "-u") == "65532"
    # The user of the image must be able to read what a cluster would mount.
    os.chmod(plane.folder, 0o755)
    for path in (plane.kubeconfig("ksched"), plane.ca_file):
        os.chmod(path, 0o644)

    def create(name: str) -> None:
        body = pod(0, "basic")
        body["metadata"]["name"] = name
        body["spec"]["schedulerName"] = "ksched"
        assert plane.request("POST", PODS, body).status == 201

    def holder() -> str:
        found = plane.request("GET", LEASE)
        return found.body["spec"]["holderIdentity"] if found.status == 200 else ""

    first_port, second_port = free_ports(2)
    with replica(plane, "first", first_port) as first:
        leader = until(holder, "the first replica leads")
        with replica(plane, "second", second_port):
            create("before")
            until(lambda: is_bound(plane, "before"), "a pod is bound")
            os.killpg(first.pid, signal.SIGKILL)
            create("after")
            until(lambda: is_bound(plane, "after"), "a pod is bound after the crash")
            assert holder() not in ("", leader)
