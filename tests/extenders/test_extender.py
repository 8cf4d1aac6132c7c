from __future__ import annotations

from typing import Any

import pytest

from ksched.api.objects import Container, PodSpec, ResourceRequirements
from ksched.configuration.extenders import Extender, ExtenderManagedResource
from ksched.errors import ExtenderError
from ksched.extenders.extender import HttpExtender, whole_node, whole_pod
from ksched.testing import make_node, make_pod
from lab.decider import Decider

FPGA = "example.com/fpga"


class NoClient:
    name = "http://x"

    async def send(self, verb: str, body: bytes) -> bytes:
        raise AssertionError

    order = send

    async def aclose(self) -> None: ...


def spec(**fields: ResourceRequirements) -> PodSpec:
    containers: dict[str, Any] = {name: [Container(resources=one)] for name, one in fields.items()}
    return PodSpec(**containers)


@pytest.mark.parametrize(
    ("pod", "is_interested"),
    [
        pytest.param(spec(containers=ResourceRequirements(requests={FPGA: 1})), True, id="request"),
        pytest.param(spec(containers=ResourceRequirements(limits={FPGA: 1})), True, id="limit"),
        pytest.param(
            spec(init_containers=ResourceRequirements(requests={FPGA: 1})),
            True,
            id="init container",
        ),
        pytest.param(spec(containers=ResourceRequirements(requests={"cpu": 1})), False, id="other"),
        pytest.param(PodSpec(), False, id="nothing"),
    ],
)
def test_extender_is_interested_in_pods_that_name_what_it_manages(
    pod: PodSpec, is_interested: bool
) -> None:
    managed = (ExtenderManagedResource(name=FPGA),)
    extender = HttpExtender(Extender(url_prefix="http://x", managed_resources=managed), NoClient())
    everything = HttpExtender(Extender(url_prefix="http://x"), NoClient())

    assert extender.is_interested(pod) is is_interested
    assert everything.is_interested(pod)


def test_objects_that_were_not_kept_whole_are_not_sent_in_part() -> None:
    decider = Decider()
    decider.set_cluster([make_node("n1").obj()])
    pod, node = decider.cache.pod_info(make_pod("web").obj()), decider.cache.get_node("n1")
    assert node is not None

    with pytest.raises(ExtenderError, match="pod default/web"):
        whole_pod(pod)
    with pytest.raises(ExtenderError, match="node n1"):
        whole_node(node)
