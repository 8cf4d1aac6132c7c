"""What runs here: version, platform and features, as gauges that never change."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ksched import __version__
from ksched.configuration.feature_gates import FEATURE_GATES, behaviours
from ksched.daemon.observation import gauge

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_BUILD = (
    *("major", "minor", "git_version", "git_commit", "git_tree_state"),
    *("build_date", "go_version", "compiler", "platform"),
)
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""As Go names them."""


def build_gauges(gates: Mapping[str, bool]) -> Callable[[], Iterator[Metric]]:
    """Return what describes the process; ``gates`` are those that were given.

    Major and minor version are those of Kubernetes whose scheduler this one behaves as, the others
    of ksched and Python.

    kube-scheduler: RegisterBuildInfo, AddMetrics of its feature gates.
    """

    def collect() -> Iterator[Metric]:
        from ksched.web.zpages import EMULATION_VERSION

        machine = platform.machine()
        build = (
            *EMULATION_VERSION.split("."),
            *(f"v{__version__}", "", "", ""),
            f"python{platform.python_version()}",
            platform.python_implementation().lower(),
            f"{platform.system().lower()}/{_MACHINES.get(machine, machine)}",
        )
        yield gauge("kubernetes_build_info", "What was built, and from what.", _BUILD, {build: 1})
        yield gauge(
            "kubernetes_feature_enabled",
            "Whether ksched behaves as kube-scheduler does with a feature.",
            ("name", "stage"),
            {
                (name, FEATURE_GATES[name].stage): int(is_on)
                for name, is_on in behaviours(gates).items()
            },
        )

    return collect
