"""The nodes of the demo: three zones, four kinds of machine."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ksched.testing.builders import NodeBuilder, make_node

ZONE: Final = "topology.kubernetes.io/zone"
ZONES: Final = ("a", "b", "c")
POOL: Final = "pool"
GPU: Final = "nvidia.com/gpu"
ACCELERATOR: Final = "accelerator.example.com"
"""A driver of devices, and the label of nodes that have them."""
SPOT: Final = "spot"

FEWEST_NODES: Final = 6
"""With fewer, a kind of machine is missing and the story makes no sense."""


class Machine(NamedTuple):
    """A kind of machine; nodes with a taint take only pods that tolerate it."""

    cpu: int
    memory_gib: int
    disk: str = "hdd"
    gpus: int = 0
    taint: str = ""
    accelerators: int = 0


MACHINES: Final = {
    "general": Machine(8, 32),
    "large": Machine(16, 96, disk="ssd", accelerators=2),
    "gpu": Machine(16, 64, disk="ssd", gpus=4, taint=GPU),
    "spot": Machine(8, 16, taint=SPOT),
    "giant": Machine(64, 256, disk="ssd"),
}

# Of every dozen machines; all kinds are among the first six.
_DOZEN: Final = (
    *("general", "general", "large", "gpu", "spot", "general"),
    *("general", "large", "general", "spot", "general", "general"),
)


def fleet(count: int) -> list[NodeBuilder]:
    """The first ``count`` nodes, zones taking turns."""
    return [make(number) for number in range(count)]


def make(number: int, pool: str = "") -> NodeBuilder:
    """Node number ``number``, from 0; ``pool`` if it is to be of a certain kind."""
    pool = pool or _DOZEN[number % len(_DOZEN)]
    machine = MACHINES[pool]
    # The shift brings every kind of machine into every zone.
    zone = ZONES[(number + number // len(_DOZEN)) % len(ZONES)]
    node = make_node(f"node-{zone}-{number // len(ZONES) + 1:02}")
    labels = {ZONE: f"zone-{zone}", POOL: pool, "disk": machine.disk}
    node = node.label({**labels, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"})
    node = node.capacity(
        {"cpu": str(machine.cpu), "memory": f"{machine.memory_gib}Gi", "pods": "110"},
        ephemeral_storage="100Gi",
    )
    node = node.merge({"status": {"nodeInfo": {"kubeletVersion": "v1.36.0"}}})
    if machine.accelerators:
        node = node.label({ACCELERATOR: str(machine.accelerators)})
    if machine.gpus:
        node = node.capacity({GPU: str(machine.gpus)})
    if machine.taint:
        node = node.taint(machine.taint, "true")
    return node


def pools(count: int) -> list[str]:
    """The kinds of the first ``count`` nodes."""
    return [_DOZEN[number % len(_DOZEN)] for number in range(count)]


def open_cpus(count: int) -> int:
    """Cores of the first ``count`` nodes on which every pod may go."""
    return sum(MACHINES[pool].cpu for pool in pools(count) if not MACHINES[pool].taint)


def devices() -> list[dict[str, Any]]:
    """The accelerators of a node that has some, as its driver publishes them."""
    return [
        {"name": f"accelerator-{number}", "capacity": {"memory": {"value": "16Gi"}}}
        for number in range(max(machine.accelerators for machine in MACHINES.values()))
    ]


def accelerators(count: int) -> int:
    """Accelerators of the first ``count`` nodes."""
    return sum(MACHINES[pool].accelerators for pool in pools(count))


def gpus(count: int) -> int:
    """GPUs of the first ``count`` nodes."""
    return sum(MACHINES[pool].gpus for pool in pools(count))
