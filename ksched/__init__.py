"""ksched: a kube-scheduler in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ksched.client.connecting import connect
    from ksched.configuration import SchedulerConfiguration, load_config
    from ksched.scheduling.scheduler import Scheduler

__version__ = "0.1.0"

__all__ = ["Scheduler", "SchedulerConfiguration", "__version__", "connect", "load_config"]

_HOMES = {
    "Scheduler": "ksched.scheduling.scheduler",
    "SchedulerConfiguration": "ksched.configuration",
    "connect": "ksched.client.connecting",
    "load_config": "ksched.configuration",
}


def __getattr__(name: str) -> Any:
    # ``--version`` and ``--help`` must not wait for NumPy to be imported.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ksched' has no attribute {name!r}")
