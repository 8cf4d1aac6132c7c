"""Where the real control plane's programs are.

envtest's convention first, for each program on its own: ``TEST_ASSET_KUBE_APISERVER`` and its
siblings name one file, ``KUBEBUILDER_ASSETS`` a folder. What they leave open is looked up in the
cache that ``make assets`` fills, so a folder from envtest, which has no kube-scheduler, is
completed from there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ksched.errors import KschedError

KUBERNETES_VERSION = "v1.36.4"
ETCD_VERSION = "v3.6.8"
HELM_VERSION = "v3.22.0"
ETCD = "etcd"
KUBE_APISERVER = "kube-apiserver"
KUBE_SCHEDULER = "kube-scheduler"
KUBECTL = "kubectl"
PROGRAMS = (ETCD, KUBE_APISERVER, KUBE_SCHEDULER, KUBECTL)
KUBE_CONTROLLER_MANAGER = "kube-controller-manager"
CONFORMANCE_TEST = "conformance.test"
HELM = "helm"
CONFORMANCE_PROGRAMS = (KUBE_CONTROLLER_MANAGER, CONFORMANCE_TEST)
"""What ``make conformance`` needs besides: the controllers, and Kubernetes' end-to-end tests."""


class AssetsMissing(KschedError):
    """Some programs of the control plane are on none of the known places."""

    def __init__(self, programs: tuple[str, ...]) -> None:
        self.programs = programs
        super().__init__(
            f"{', '.join(programs)} not found: run make assets, "
            "or set KUBEBUILDER_ASSETS or TEST_ASSET_*"
        )


@dataclass(frozen=True)
class Assets:
    """The programs of one control plane."""

    etcd: Path
    kube_apiserver: Path
    kube_scheduler: Path
    kubectl: Path

    @classmethod
    def find(cls) -> Assets:
        """Find all programs, or raise ``AssetsMissing`` with the names of those that are not."""
        found = {program: locate(program) for program in PROGRAMS}
        if missing := tuple(program for program, path in found.items() if path is None):
            raise AssetsMissing(missing)
        return cls(**{_attribute(program): path for program, path in found.items() if path})


def variable(program: str) -> str:
    """The environment variable that names this program's file."""
    return f"TEST_ASSET_{_attribute(program).upper()}"


def locate(program: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Find one program; ``None`` when it is nowhere.

    A variable that names a file which cannot be run is a mistake of the caller and raises, so that
    a misspelt path is not answered by a program from elsewhere.
    """
    if named := environ.get(variable(program)):
        if not _is_executable(Path(named)):
            raise KschedError(f"{variable(program)}: {named} is not an executable file")
        return Path(named)
    for folder in (environ.get("KUBEBUILDER_ASSETS"), cache_folder(environ)):
        if folder and _is_executable(path := Path(folder, program)):
            return path
    return None


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder that ``make assets`` fills."""
    base = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "ksched", "assets", KUBERNETES_VERSION)


def _attribute(program: str) -> str:
    return program.replace("-", "_").replace(".", "_")


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
