"""ksched: a kube-scheduler in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ksched.scheduling.scheduler import Scheduler

__version__ = "0.1.0"

__all__ = ["Scheduler", "__version__"]


def __getattr__(name: str) -> Any:
    # Whoever asks only for the version or the help should not wait for NumPy.
    if name == "Scheduler":
        from ksched.scheduling.scheduler import Scheduler

        return Scheduler
    raise AttributeError(f"module 'ksched' has no attribute {name!r}")
