"""Claims, device classes and slices for tests, built like pods and nodes (see ``builders``).

make_resource_claim("gpu").request("r", "gpu.example.com", count=2).obj()
make_slice("n1").device("gpu-0", model="a100").device("gpu-1").obj()
"""

from __future__ import annotations

from typing import Any, Self

import msgspec

from ksched.api.decoding import decoder_of
from ksched.api.devices import DeviceClass, ResourceClaim, ResourceSlice
from ksched.api.watched_kinds import watched_kind
from ksched.testing.builders import Builder, PodBuilder

GROUP_VERSION = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"


def make_device_class(
    name: str = DRIVER, expression: str | None = None, *, extended: str = ""
) -> DeviceClassBuilder:
    """Start a class: the devices of the driver of that name, or those that match an expression."""
    cel = {"expression": expression or f'device.driver == "{name}"'}
    spec: dict[str, Any] = {"selectors": [{"cel": cel}]}
    if extended:
        spec["extendedResourceName"] = extended
    kind = {"apiVersion": GROUP_VERSION, "kind": "DeviceClass"}
    return DeviceClassBuilder(
        {**kind, "metadata": {"name": name, "uid": f"uid:{name}"}, "spec": spec}
    )


def make_resource_claim(name: str = "claim", namespace: str = "default") -> ResourceClaimBuilder:
    """Start a claim without requests."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid:{namespace}/{name}"}
    kind = {"apiVersion": GROUP_VERSION, "kind": "ResourceClaim"}
    return ResourceClaimBuilder({**kind, "metadata": metadata, "spec": {"devices": {}}})


def make_slice(
    node: str = "", *, name: str = "", pool: str = "", driver: str = DRIVER
) -> ResourceSliceBuilder:
    """Start a slice, the only one of its pool: of one node, or of all nodes."""
    pool = pool or node or "shared"
    where: dict[str, Any] = {"nodeName": node} if node else {"allNodes": True}
    spec = {
        "driver": driver,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        **where,
        "devices": [],
    }
    kind = {"apiVersion": GROUP_VERSION, "kind": "ResourceSlice"}
    metadata = {"name": name or f"{driver}-{pool}"}
    return ResourceSliceBuilder({**kind, "metadata": metadata, "spec": spec})


def with_claim(pod: PodBuilder, claim: str, *, entry: str = "") -> PodBuilder:
    """The pod with one more claim, by its name."""
    entries = pod.to_dict()["spec"].get("resourceClaims", [])
    more = {"name": entry or f"entry-{len(entries)}", "resourceClaimName": claim}
    return pod.merge({"spec": {"resourceClaims": [*entries, more]}})


class DeviceClassBuilder(Builder[DeviceClass]):
    """A class under construction; see ``make_device_class``."""

    kind = DeviceClass

    def obj(self) -> DeviceClass:
        built: DeviceClass = _decode_class(msgspec.json.encode(self._data))
        return built

    def config(self, parameters: Any, driver: str = DRIVER) -> Self:
        opaque = {"driver": driver, "parameters": parameters}
        return self._append("spec", "config", item={"opaque": opaque})


class ResourceClaimBuilder(Builder[ResourceClaim]):
    """A claim under construction; see ``make_resource_claim``."""

    kind = ResourceClaim

    def obj(self) -> ResourceClaim:
        built: ResourceClaim = _decode_claim(msgspec.json.encode(self._data))
        return built

    def request(self, name: str = "r", device_class: str = DRIVER, **fields: Any) -> Self:
        """Ask for devices of a class: ``count``, ``all=True``, ``cel``, and API fields as named."""
        item = {"name": name, "exactly": _asked(device_class, fields)}
        return self._append("spec", "devices", "requests", item=item)

    def first_available(self, name: str = "r", **ways: dict[str, Any]) -> Self:
        """Ask for the first of several alternatives, each with the fields of ``request``."""
        items = [
            {"name": way, **_asked(fields.pop("device_class", DRIVER), fields)}
            for way, fields in ((way, dict(fields)) for way, fields in ways.items())
        ]
        item = {"name": name, "firstAvailable": items}
        return self._append("spec", "devices", "requests", item=item)

    def constraint(self, *requests: str, match: str = "", distinct: str = "") -> Self:
        item: dict[str, Any] = {"requests": list(requests)} if requests else {}
        item |= {"matchAttribute": match} if match else {"distinctAttribute": distinct}
        return self._append("spec", "devices", "constraints", item=item)

    def config(self, *requests: str, parameters: Any, driver: str = DRIVER) -> Self:
        opaque = {"driver": driver, "parameters": parameters}
        item = {"requests": list(requests), "opaque": opaque}
        return self._append("spec", "devices", "config", item=item)

    def allocated(self, *results: dict[str, Any], node: str = "") -> Self:
        """Devices that the claim has, on a node or anywhere."""
        allocation: dict[str, Any] = {
            "devices": {"results": [{"driver": DRIVER, **one} for one in results]},
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        }
        if node:
            only = {"key": "metadata.name", "operator": "In", "values": [node]}
            allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [only]}]}
        return self._set("status", "allocation", to=allocation)

    def reserved_for(self, *pods: str, namespace: str = "default") -> Self:
        users = [{"resource": "pods", "name": pod, "uid": f"uid:{namespace}/{pod}"} for pod in pods]
        return self._set("status", "reservedFor", to=users)

    def owned_by(self, pod: str, namespace: str = "default") -> Self:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "controller": True}
        owner["uid"] = f"uid:{namespace}/{pod}"
        return self._append("metadata", "ownerReferences", item=owner)


class ResourceSliceBuilder(Builder[ResourceSlice]):
    """A slice under construction; see ``make_slice``."""

    kind = ResourceSlice

    def pool(self, *, generation: int = 1, slices: int = 1) -> Self:
        return self._update(
            "spec", "pool", items={"generation": generation, "resourceSliceCount": slices}
        )

    def device(
        self,
        name: str,
        *,
        capacity: dict[str, Any] | None = None,
        fields: dict[str, Any] | None = None,
        **attributes: str | int | bool,
    ) -> Self:
        """One more device; quantities of its capacity may come with a policy of requests."""
        amounts = {
            key: value if isinstance(value, dict) else {"value": value}
            for key, value in (capacity or {}).items()
        }
        item: dict[str, Any] = {"name": name, **(fields or {})}
        if attributes:
            item["attributes"] = {key: _attribute(value) for key, value in attributes.items()}
        if amounts:
            item["capacity"] = amounts
        return self._append("spec", "devices", item=item)

    def counters(self, **sets: dict[str, str]) -> Self:
        """Make this the slice with the shared counters of its pool."""
        shared = [
            {"name": name, "counters": {key: {"value": value} for key, value in counters.items()}}
            for name, counters in sets.items()
        ]
        return self._set("spec", "sharedCounters", to=shared)

    def selecting(self, **labels: list[str]) -> Self:
        """Make this a slice of the nodes with these labels."""
        wanted = [
            {"key": key, "operator": "In", "values": values} for key, values in labels.items()
        ]
        selector = {"nodeSelectorTerms": [{"matchExpressions": wanted}]}
        patch = {"spec": {"nodeName": None, "allNodes": None, "nodeSelector": selector}}
        return self.merge(patch)


def consumes(counter_set: str, **counters: str) -> dict[str, Any]:
    """The fields of a device that consumes counters."""
    amounts = {key: {"value": value} for key, value in counters.items()}
    return {"consumesCounters": [{"counterSet": counter_set, "counters": amounts}]}


def tainted(effect: str = "NoSchedule", key: str = "sick", value: str = "") -> dict[str, Any]:
    """The fields of a device with a taint."""
    return {"taints": [{"key": key, "value": value, "effect": effect}]}


def _asked(device_class: str, fields: dict[str, Any]) -> dict[str, Any]:
    asked: dict[str, Any] = {"deviceClassName": device_class, "allocationMode": "ExactCount"}
    if fields.pop("all", False):
        asked["allocationMode"] = "All"
    else:
        asked["count"] = fields.pop("count", 1)
    if "cel" in fields:
        asked["selectors"] = [{"cel": {"expression": fields.pop("cel")}}]
    if "capacity" in fields:
        asked["capacity"] = {"requests": fields.pop("capacity")}
    return {**asked, **fields}


def _attribute(value: str | int | bool) -> dict[str, Any]:
    kind = {bool: "bool", int: "int", str: "string"}[type(value)]
    return {kind: value}


_decode_class = decoder_of(watched_kind(DeviceClass))
_decode_claim = decoder_of(watched_kind(ResourceClaim))
