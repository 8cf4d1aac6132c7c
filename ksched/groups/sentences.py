"""What a group waits for, in one sentence."""

from __future__ import annotations

from ksched.groups.slots import PODS

GROUP_UNSCHEDULABLE = "pod group is unschedulable"
"""The beginning of kube-scheduler's message about a group."""
GROUP_FAILED = "failed to schedule other pod from a pod group"
"""The beginning of its message after an error."""
NO_PREEMPTION = "preemption: not tried for a group that must stay in one domain"

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def short_of(fitting: int, need: int, resource: str, amount: int) -> str:
    """``5 of 8 fit; short of 3 × 4 cpu``."""
    what = "1 pod" if resource == PODS else f"{quantity(resource, amount)} {resource}"
    return f"{fitting} of {need} fit; short of {need - fitting} × {what}"


def kept_room(nodes: int) -> str:
    """``it has waited for long: room on 2 nodes is reserved for it``."""
    return f"it has waited for long: room on {nodes} nodes is reserved for it"


def quantity(resource: str, amount: int) -> str:
    """An amount as users write it."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        exponent = 0
        while amount and amount % 1024 == 0 and exponent < len(_BINARY) - 1:
            amount, exponent = amount // 1024, exponent + 1
        return f"{amount}{_BINARY[exponent]}"
    return str(amount)
