"""Workloads with devices, for the benchmarks: the shapes of kube-scheduler's own (scheduler_perf).

A workload is device classes, slices, claims, and the fields that its pods have besides the usual
ones. ``ksched bench`` and ``python -m bench`` use the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from ksched.api.devices import IMPLICIT_EXTENDED_RESOURCE_PREFIX, POD_CLAIM_NAME
from ksched.configuration.strict_model import API_VERSION
from ksched.testing.builders import Json
from ksched.testing.device_builders import (
    DRIVER,
    DeviceClassBuilder,
    ResourceClaimBuilder,
    ResourceSliceBuilder,
    consumes,
    make_device_class,
    make_resource_claim,
    make_slice,
    tainted,
)

DEVICES_PER_NODE: Final = 10
SHARERS: Final = 5
"""Pods that share a claim."""
EXTENDED_CLASSES: Final = 25
MANY_CLASSES: Final = 50
SCORED_RESOURCE: Final = "example.com/gpu-0"
AT_ONCE: Final = 10
"""Pods of a steady cluster that are not placed yet."""
REPUBLISHED_PER_SECOND: Final = 50.0
ENTRY: Final = "resource"
"""The claim's name in the pod."""
NUMA: Final = "dra.example.com/numa"
SLICE: Final = "dra.example.com/slice"
TAINT: Final = "example.com/taint"

_ON_ALL_NODES: Final = {"topology.kubernetes.io/region": ["r0"]}
"""All nodes of the benchmarks have it."""


class DeviceWorkload(NamedTuple):
    """The objects of a workload."""

    classes: Sequence[DeviceClassBuilder]
    slices: Callable[[Sequence[str], int], Iterator[ResourceSliceBuilder]]
    """For these nodes and so many pods."""
    add_to_pod: Callable[[Json, int], None]
    """Change the manifest of pod ``number``."""
    claims: Callable[[Sequence[str], int], Iterator[ResourceClaimBuilder]] = lambda *_: iter(())
    """For these nodes and so many pods, those that exist before them; some may have devices."""
    own: ResourceClaimBuilder | None = None
    """The claim of each pod, as if made from a template."""
    plugin_args: Mapping[str, Json] = MappingProxyType({})
    """Arguments of plugins that are not the default, by plugin."""
    at_once: int = 0
    """How many pods exist at a time: one that is bound is deleted with its claim, then comes the
    next; 0: all, and they stay."""
    republished_per_second: float = 0.0
    """How many slices drivers publish anew meanwhile."""

    @property
    def configuration(self) -> Json:
        """The configuration of a scheduler for the workload."""
        args = [{"name": name, "args": args} for name, args in self.plugin_args.items()]
        return {
            "apiVersion": API_VERSION,
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": args}],
        }

    def own_claim(self, body: Json) -> Json | None:
        """The claim of a pod's own, whose manifest has a UID."""
        if self.own is None:
            return None
        meta = body["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "controller": True}
        claim = _named(self.own, _own_name(body)).annotation({POD_CLAIM_NAME: ENTRY})
        owners = {"ownerReferences": [{**owner, "uid": meta["uid"]}]}
        return claim.merge({"metadata": owners}).to_dict()

    def pod_status(self, body: Json) -> Json:
        """The status that names a pod's own claim."""
        name = _own_name(body)
        return {"resourceClaimStatuses": [{"name": ENTRY, "resourceClaimName": name}]}


def _of_every_node(
    devices: int, fields: Json | None = None
) -> Callable[[Sequence[str], int], Iterator[ResourceSliceBuilder]]:
    def slices(nodes: Sequence[str], pods: int) -> Iterator[ResourceSliceBuilder]:
        for node in nodes:
            made = make_slice(node)
            for number in range(devices):
                about: dict[str, str | int] = {"model": "A100", "family": "GPU", NUMA: number}
                memory = {"memory": "1Gi"}
                made = made.device(f"instance-{number}", capacity=memory, fields=fields, **about)
            yield made

    return slices


def _own_name(body: Json) -> str:
    return f"{body['metadata']['name']}-{ENTRY}"


def _shared(nodes: Sequence[str], pods: int) -> Iterator[ResourceClaimBuilder]:
    for number in range(-(-pods // SHARERS)):
        yield _named(_ONE_DEVICE, f"claim-{number:06d}")


def _half_full(nodes: Sequence[str], pods: int) -> Iterator[ResourceClaimBuilder]:
    """Half of the devices of every node are allocated."""
    for node in nodes:
        for number in range(DEVICES_PER_NODE // 2):
            result = {"request": "req-0", "pool": node, "device": f"instance-{number}"}
            claim = _named(_ONE_DEVICE, f"other-{node}-{number}")
            yield claim.allocated(result, node=node)


def _named(claim: ResourceClaimBuilder, name: str) -> ResourceClaimBuilder:
    return claim.merge({"metadata": {"name": name, "uid": f"uid:{name}"}})


def _with_shared_claim(body: Json, number: int) -> None:
    _add_claim(body, {"resourceClaimName": f"claim-{number // SHARERS:06d}"})


def _with_own_claim(body: Json, number: int) -> None:
    _add_claim(body, {"resourceClaimTemplateName": "template"})


def _add_claim(body: Json, source: Json) -> None:
    body["spec"]["resourceClaims"] = [{"name": ENTRY, **source}]
    body["spec"]["containers"][0]["resources"]["claims"] = [{"name": ENTRY}]


def _with_extended_resource(classes: int, body: Json, number: int) -> None:
    _add_resource(body, f"example.com/gpu-{number % classes}")


def _with_implicit_resource(body: Json, number: int) -> None:
    _add_resource(body, f"{IMPLICIT_EXTENDED_RESOURCE_PREFIX}class-{number % EXTENDED_CLASSES}")


def _add_resource(body: Json, resource: str) -> None:
    resources = body["spec"]["containers"][0]["resources"]
    resources["requests"][resource] = "1"
    resources["limits"] = {resource: "1"}


# -- pools that any node may use ----------------------------------------------------------------


def _partitions(nodes: Sequence[str], pods: int) -> Iterator[ResourceSliceBuilder]:
    """A pool for each pod: two halves of a board, or four quarters."""
    counters = [f"counter{number}" for number in range(1, 5)]
    for number in range(pods):
        pool = f"board-{number:06d}"
        common = make_slice(pool=pool).selecting(**_ON_ALL_NODES)
        made = common.merge({"metadata": {"name": f"{pool}-devices"}}).pool(slices=2)
        for name, used in (
            *((f"half-{half + 1}", counters[2 * half : 2 * half + 2]) for half in range(2)),
            *((f"quarter-{one + 1}", counters[one : one + 1]) for one in range(4)),
        ):
            made = made.device(
                name,
                capacity={"counters": str(len(used))},
                fields=consumes("counter-set", **dict.fromkeys(used, "1")),
                **{SLICE: number, "preallocate": name == "half-1"},
            )
        yield made
        sets = common.merge({"metadata": {"name": f"{pool}-counters"}, "spec": {"devices": None}})
        yield sets.pool(slices=2).counters(**{"counter-set": dict.fromkeys(counters, "1")})


def _halves(nodes: Sequence[str], pods: int) -> Iterator[ResourceClaimBuilder]:
    """One half of every board is allocated."""
    for number in range(pods):
        result = {"request": "req-0", "pool": f"board-{number:06d}", "device": "half-1"}
        yield _named(_ONE_DEVICE, f"other-{number:06d}").allocated(result)


def _boards(nodes: Sequence[str], pods: int) -> Iterator[ResourceSliceBuilder]:
    """A pool for each pod: seven of eight devices have enough memory only without the first."""
    for number in range(pods):
        pool = f"board-{number:06d}"
        common = make_slice(pool=pool).selecting(**_ON_ALL_NODES).pool(slices=2)
        made = common.merge({"metadata": {"name": f"{pool}-devices"}})
        for device in range(1, 9):
            used = consumes("counter-set", memory="4Gi" if device == 1 else "1Gi")
            about: dict[str, str | int] = {SLICE: number}
            made = made.device(f"device-{device}", capacity=None, fields=used, **about)
        yield made
        sets = common.merge({"metadata": {"name": f"{pool}-counters"}, "spec": {"devices": None}})
        yield sets.counters(**{"counter-set": {"memory": "7Gi"}})


def _shareable(nodes: Sequence[str], pods: int) -> Iterator[ResourceSliceBuilder]:
    """A device of 80Gi for each pod, in a pool of its own."""
    policy = {"default": "1Gi", "validRange": {"min": "1Gi"}}
    memory = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    for number in range(pods):
        made = make_slice(pool=f"shared-{number:06d}").selecting(**_ON_ALL_NODES)
        yield made.device("d", capacity=memory, fields={"allowMultipleAllocations": True})


_ONE_DEVICE: Final = make_resource_claim().request("req-0")
_TWO_OF_A_BOARD: Final = (
    make_resource_claim().request("req-0", count=2).constraint("req-0", match=SLICE)
)
_FORTY_TWICE: Final = (
    make_resource_claim()
    .request("req-0", capacity={"memory": "40Gi"})
    .request("req-1", capacity={"memory": "40Gi"})
)
_SECOND_CHOICE: Final = make_resource_claim().first_available(
    "req-0", none={"device_class": "no-devices"}, one={}
)
_TOLERATING: Final = make_resource_claim().request(
    "req-0", tolerations=[{"key": TAINT, "operator": "Exists"}]
)
_SEVEN_OF_A_BOARD: Final = (
    make_resource_claim().request("req-0", count=7).constraint("req-0", match=SLICE)
)
_CLASS: Final = make_device_class()
_OF_ANOTHER_DRIVER: Final = make_device_class("no-devices")
_EXTENDED: Final = tuple(
    make_device_class(
        f"class-{number}", f'device.driver == "{DRIVER}"', extended=f"example.com/gpu-{number}"
    )
    for number in range(MANY_CLASSES)
)
_IMPLICIT: Final = tuple(
    make_device_class(f"class-{number}", f'device.driver == "{DRIVER}"')
    for number in range(EXTENDED_CLASSES)
)

_LEAST_ALLOCATED: Final = {
    "type": "LeastAllocated",
    "resources": [{"name": SCORED_RESOURCE, "weight": 1}],
}
_TEN_EACH: Final = _of_every_node(DEVICES_PER_NODE)
_TAINTED: Final = _of_every_node(DEVICES_PER_NODE, tainted(key=TAINT))

DEVICE_WORKLOADS: Final[Mapping[str, DeviceWorkload]] = MappingProxyType(
    {
        "claims": DeviceWorkload([_CLASS], _TEN_EACH, _with_own_claim, own=_ONE_DEVICE),
        "sharedclaims": DeviceWorkload([_CLASS], _of_every_node(2), _with_shared_claim, _shared),
        "extended": DeviceWorkload(
            _EXTENDED[:EXTENDED_CLASSES],
            _TEN_EACH,
            partial(_with_extended_resource, EXTENDED_CLASSES),
        ),
        "extended50": DeviceWorkload(
            _EXTENDED, _TEN_EACH, partial(_with_extended_resource, MANY_CLASSES)
        ),
        "extendedscoring": DeviceWorkload(
            _EXTENDED[:1],
            _TEN_EACH,
            partial(_with_extended_resource, 1),
            plugin_args={"NodeResourcesFit": {"scoringStrategy": _LEAST_ALLOCATED}},
        ),
        "implicit": DeviceWorkload(_IMPLICIT, _TEN_EACH, _with_implicit_resource),
        "firstavailable": DeviceWorkload(
            [_CLASS, _OF_ANOTHER_DRIVER], _TEN_EACH, _with_own_claim, own=_SECOND_CHOICE
        ),
        "devicetaints": DeviceWorkload([_CLASS], _TAINTED, _with_own_claim, own=_TOLERATING),
        "steadyclaims": DeviceWorkload(
            [_CLASS], _TEN_EACH, _with_own_claim, _half_full, own=_ONE_DEVICE, at_once=AT_ONCE
        ),
        "republished": DeviceWorkload(
            [_CLASS],
            _TEN_EACH,
            _with_own_claim,
            own=_ONE_DEVICE,
            republished_per_second=REPUBLISHED_PER_SECOND,
        ),
        "partitions": DeviceWorkload(
            [_CLASS], _partitions, _with_own_claim, _halves, own=_TWO_OF_A_BOARD
        ),
        "capacity": DeviceWorkload([_CLASS], _shareable, _with_own_claim, own=_FORTY_TWICE),
        "backtracking": DeviceWorkload([_CLASS], _boards, _with_own_claim, own=_SEVEN_OF_A_BOARD),
    }
)
