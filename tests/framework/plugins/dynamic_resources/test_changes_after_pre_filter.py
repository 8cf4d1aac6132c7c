"""What changes between PreFilter's searches for devices and the filter that uses their results."""

from __future__ import annotations

from typing import Any

import pytest

from ksched.api.devices import DeviceClass
from ksched.cache.pod_info import PodInfo
from ksched.framework import CycleState, Snapshot
from ksched.framework.plugins.dynamic_resources.plugin import DynamicResources
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.scheduling.scheduling_cycle import Placed, Rejected
from ksched.testing import make_node, make_pod
from ksched.testing.device_builders import DRIVER, make_device_class, make_slice
from lab.decider import Decider

RESOURCE = "example.com/gpu"


@pytest.mark.parametrize(("driver", "is_placed"), [(DRIVER, True), ("other", False)])
async def test_another_device_class_gets_the_resource(
    monkeypatch: pytest.MonkeyPatch, driver: str, is_placed: bool
) -> None:
    """Another PreFilter plugin may wait for something while the event of a class comes."""
    pre_filter = DynamicResources.pre_filter

    def and_then(
        plugin: DynamicResources, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> Any:
        status = pre_filter(plugin, state, pod, snapshot)
        made.listers.require(DeviceClass).put(second.obj())
        return status

    monkeypatch.setattr(DynamicResources, "pre_filter", and_then)
    made = Decider()
    made.set_cluster([make_node("n0").capacity(cpu="4", memory="8Gi", pods="10").obj()])
    first = make_device_class("b", f'device.driver == "{DRIVER}"', extended=RESOURCE)
    second = make_device_class("a", f'device.driver == "{driver}"', extended=RESOURCE)
    for one in (first.obj(), make_slice("n0").device("d0").obj()):
        made.listers.require(type(one)).put(one)
    pod = make_pod("web").container({RESOURCE: "1"}).obj()
    found = await made.cycle.run(QueuedPodInfo(made.cache.pod_info(pod), 0.0))
    if is_placed:
        assert isinstance(found, Placed), found
    else:
        assert isinstance(found, Rejected), found
        assert "cannot allocate all claims" in found.message
