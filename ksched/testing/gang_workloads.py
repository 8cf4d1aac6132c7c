"""Workloads of gangs for ``ksched bench``: their pods, what runs before, a plugin that holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from ksched.api.objects import Pod
from ksched.cache.pod_info import PodInfo
from ksched.configuration.strict_model import API_VERSION
from ksched.framework.cycle_state import CycleState
from ksched.framework.handle import Handle
from ksched.framework.status import Status, wait
from ksched.groups.dialects.annotations import MINIMUM, NAME, TOPOLOGY
from ksched.testing.builders import make_pod

RACK: Final = "example.com/rack"


class Gangs(Struct, frozen=True):
    """A workload of gangs."""

    size: int = 0
    """How many pods have to start together; 0: all."""
    cpu: str = "100m"
    fits: bool = True
    in_rack: bool = False
    cpu_in_use: tuple[int, ...] = ()
    """Of each pod that runs on the nodes in turn; they are less important."""
    running_per_node: int = 1
    priority: int = 0
    is_held: bool = False
    """Whether Permit holds the pods until the last of them is held."""
    are_singles_beside: bool = False
    """Whether the pods are single ones, and for every five a gang was refused before."""

    def pod(self, number: int, pods: int) -> Pod:
        size = min(self.size or pods, pods)
        gang = number // size
        # The last gang may be smaller.
        marks = {NAME: f"g{gang}", MINIMUM: str(min(size, pods - gang * size))}
        if self.in_rack:
            marks[TOPOLOGY] = RACK
        pod = make_pod(f"p-gang-{number:06d}").req(cpu=self.cpu, memory="500Mi")
        return pod.annotation(marks).priority(self.priority).obj()

    def running(self, nodes: int) -> Iterator[Pod]:
        """What runs before the gangs come."""
        for number in range(self.running_per_node * nodes if self.cpu_in_use else 0):
            cpu = self.cpu_in_use[number % len(self.cpu_in_use)]
            pod = make_pod(f"running-{number:05d}").req(cpu=cpu).node(f"node-{number % nodes:05d}")
            yield pod.priority(-1).obj()

    def refused(self, pods: int) -> Iterator[Pod]:
        """The members of gangs that wait when the pods come."""
        count = max(pods // 5, 1) * self.size if self.are_singles_beside else 0
        return (self.pod(number, count) for number in range(count))


def _full(size: int) -> Gangs:
    """Nodes are full to 80 %, and on every fifth there is too little room for one pod."""
    return Gangs(size, cpu="3", cpu_in_use=(20, 24, 26, 28, 30), priority=-1)


GANGS: Final[Mapping[str, Gangs]] = MappingProxyType(
    {
        **{f"gangs{size}": Gangs(size) for size in (1, 3, 20, 30, 300, 500)},
        "gang": Gangs(),
        **{f"gangsfull{size}": _full(size) for size in (3, 30, 300)},
        "gangfull": _full(0),
        "gangrack": Gangs(in_rack=True),
        "gangsevict10": Gangs(10, cpu="12", cpu_in_use=(3,), running_per_node=10),
        "gangsevict500": Gangs(500, cpu="16", cpu_in_use=(7,), running_per_node=4),
        "gangshopeless": Gangs(10, cpu="1000", fits=False),
        "besidehopeless": Gangs(10, cpu="1000", are_singles_beside=True),
        "gangsheld": Gangs(100, is_held=True),
    }
)


class Hold:
    """Holds pods at Permit."""

    name = "Hold"
    permit_wait_seconds = 600.0

    def __init__(self, args: None, handle: Handle) -> None:
        pass

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return wait()


HOLDING: Final = f"""
apiVersion: {API_VERSION}
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint:
        enabled: [{{name: {Hold.name}}}]
"""
