"""Random devices, classes and claims that a real API server admits.

Each driver publishes devices of one kind, so that it is known which features a claim meets.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

NAMESPACE = "dra"
GPU, PART, SHARE, BIND, NET = (
    f"{one}.example.com" for one in ("gpu", "part", "share", "bind", "net")
)
DRIVERS = (GPU, PART, SHARE, BIND, NET)
LONG = "long.example.com"
"""Its devices can be combined in more ways than a search has time for."""
EXTENDED = "example.com/accelerator"
ZONES = ("a", "b")
HOST = "kubernetes.io/hostname"
_LONG_DEVICES = 30

ADMIN_ACCESS, PRIORITIZED, CAPACITY, BINDING, TAINTS, EXTENDED_RESOURCE, PARTITIONABLE, STATUS = (
    "DRAAdminAccess",
    "DRAPrioritizedList",
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRADeviceTaints",
    "DRAExtendedResource",
    "DRAPartitionableDevices",
    "DRAResourceClaimDeviceStatus",
)
FEATURES = (
    *(ADMIN_ACCESS, PRIORITIZED, CAPACITY, BINDING, TAINTS),
    *(EXTENDED_RESOURCE, PARTITIONABLE, STATUS),
)
FILTER_TIMEOUT = "DRASchedulerFilterTimeout"
ALLOCATION = "DynamicResourceAllocation"
TEMPLATE = "ResourceClaimTemplate"
_OF_DRIVER = {GPU: TAINTS, PART: PARTITIONABLE, SHARE: CAPACITY, BIND: BINDING}

TAINT = {"key": "broken", "value": "x", "effect": "NoSchedule"}
TOLERATIONS: tuple[Json, ...] = (
    {"operator": "Exists"},
    {"key": "broken", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "broken", "operator": "Equal", "value": "x"},
    {"key": "broken", "operator": "Equal", "value": "y"},
)
POLICIES: tuple[Json, ...] = (
    {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "512Mi"}},
    {"default": "2Gi", "validValues": ["1Gi", "2Gi", "4Gi"]},
    {"default": "1Gi", "validRange": {"min": "1Gi"}},
)


class RandomDevices:
    """Makes the objects of one seed; names are unique within it."""

    def __init__(self, rng: Random, prefix: str = "") -> None:
        self._rng = rng
        self._prefix = prefix
        self.nodes: list[Json] = []
        self.slices: list[Json] = []
        self.classes: list[Json] = []
        self.kinds: tuple[str, ...] = (*self.kinds_that_bind_at_once, BIND)
        """Classes that claims ask for."""

    kinds_that_bind_at_once = (GPU, GPU, "model-a", PART, SHARE, NET)

    def sometimes(self, percent: int) -> bool:
        return self._rng.random() * 100 < percent

    # -- the cluster ----------------------------------------------------------------------------

    def make_cluster(self) -> None:
        for number in range(self._rng.randint(2, 4)):
            self.nodes.append(self._node(f"{self._prefix}n{number}"))
        self.classes = self._device_classes()
        for node in self.nodes:
            name = node["metadata"]["name"]
            for driver in (GPU, PART, SHARE, BIND):
                if self.sometimes(75):
                    self.slices += self.pool(driver, name)
        for number in range(self._rng.randint(0, 2)):
            self.slices += self.pool(NET, "", f"{self._prefix}net{number}")

    def add_long_searches(self) -> None:
        """Devices for ``long_claim``, on one node: which of several runs out of time is chance."""
        node = self._rng.choice(self.nodes)["metadata"]["name"]
        spec = {"selectors": [_cel(f'device.driver == "{LONG}"')]}
        self.classes.append({"metadata": {"name": self.class_name(LONG)}, "spec": spec})
        devices = [
            {"name": f"d{number}", "attributes": {"index": {"int": number}}}
            for number in range(_LONG_DEVICES)
        ]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        published = {"driver": LONG, "nodeName": node, "pool": pool, "devices": devices}
        self.slices.append({"metadata": {"name": f"{node}-long"}, "spec": published})

    def _node(self, name: str) -> Json:
        capacity = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        if self.sometimes(25):
            capacity[EXTENDED] = "2"
        labels = {HOST: name, "zone": self._rng.choice(ZONES)}
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": capacity, "capacity": capacity},
        }

    def _device_classes(self) -> list[Json]:
        rng = self._rng
        made = []
        for driver in DRIVERS:
            spec: Json = {"selectors": [_cel(f'device.driver == "{driver}"')]}
            if driver == GPU:
                spec["extendedResourceName"] = EXTENDED
            if self.sometimes(30):
                spec["config"] = [_opaque(driver, rng.randrange(3))]
            made.append({"metadata": {"name": self.class_name(driver)}, "spec": spec})
        first = f'device.attributes["{GPU}"].model == "a"'
        spec = {"selectors": [_cel(f'device.driver == "{GPU}"'), _cel(first)]}
        made.append({"metadata": {"name": self.class_name("model-a")}, "spec": spec})
        return made

    def class_name(self, kind: str) -> str:
        return f"{self._prefix}{kind.partition('.')[0]}"

    def pool(self, driver: str, node: str, name: str = "") -> list[Json]:
        """The slices of a pool: of a node, or for the network."""
        rng = self._rng
        name = name or node
        where: Json = {"nodeName": node}
        if driver == NET:
            where = rng.choice(
                (
                    {"allNodes": True},
                    {"nodeSelector": _zone(rng.choice(ZONES))},
                    {"perDeviceNodeSelection": True},
                )
            )
        count = 2 if self.sometimes(25) else 1
        generation, declared = rng.randint(1, 3), count
        if self.sometimes(4):
            declared += 1
        has_counters = driver == PART
        made = []
        for number in range(count):
            devices = [
                self._device(driver, f"d{number}-{index}", "perDeviceNodeSelection" in where)
                for index in range(rng.randint(1, 4))
            ]
            if number and self.sometimes(6):
                devices[0]["name"] = "d0-0"
            made.append({**where, "devices": devices})
        if has_counters:
            made.append({**where, "sharedCounters": self._counters()})
        slices = []
        for number, spec in enumerate(made):
            pool = {
                "name": name,
                "generation": generation,
                "resourceSliceCount": declared + has_counters,
            }
            slice_name = f"{name}-{driver.partition('.')[0]}-{number}"
            whole = {"driver": driver, "pool": pool, **spec}
            slices.append({"metadata": {"name": slice_name}, "spec": whole})
        return slices

    def _counters(self) -> list[Json]:
        units = self._rng.randint(2, 6)
        return [{"name": "board", "counters": {"units": {"value": str(units)}}}]

    def _device(self, driver: str, name: str, is_per_device: bool) -> Json:
        rng = self._rng
        attributes: Json = {
            "model": {"string": rng.choice("ab")},
            "index": {"int": rng.randrange(4)},
            "driverVersion": {"version": rng.choice(("1.2.3", "2.0.0"))},
        }
        if self.sometimes(50):
            attributes["resource.kubernetes.io/numaNode"] = {"int": rng.randrange(2)}
        if self.sometimes(30):
            attributes["fast"] = {"bool": rng.random() < 0.5}
        memory: Json = {"value": rng.choice(("2Gi", "8Gi", "16Gi"))}
        device: Json = {"name": name, "attributes": attributes, "capacity": {"memory": memory}}
        if driver == GPU and self.sometimes(30):
            device["taints"] = [dict(TAINT)]
        if driver == PART:
            units = rng.randint(1, 3)
            counters = {"units": {"value": str(units)}}
            device["consumesCounters"] = [{"counterSet": "board", "counters": counters}]
        if driver == SHARE:
            device["allowMultipleAllocations"] = True
            memory["value"] = "16Gi"
            if self.sometimes(70):
                memory["requestPolicy"] = rng.choice(POLICIES)
        if driver == BIND and self.sometimes(60):
            device["bindingConditions"] = ["attached"]
            device["bindingFailureConditions"] = ["broken"]
            if self.sometimes(30):
                device["bindsToNode"] = True
        if is_per_device:
            where: tuple[Json, ...] = (
                {"allNodes": True},
                {"nodeSelector": _zone(rng.choice(ZONES))},
                {"nodeName": rng.choice(self.nodes)["metadata"]["name"]},
            )
            device |= rng.choice(where)
        return device

    # -- claims ---------------------------------------------------------------------------------

    def claim(self, name: str) -> tuple[Json, set[str]]:
        """A claim without devices, and the features it asks for."""
        rng = self._rng
        features: set[str] = set()
        requests = [self._request(f"r{n}", features) for n in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        devices: Json = {"requests": requests}
        if self.sometimes(25):
            devices["constraints"] = [self._constraint(requests)]
        if self.sometimes(20):
            config = _opaque(rng.choice(DRIVERS), rng.randrange(3))
            if self.sometimes(60):
                config["requests"] = [rng.choice(requests)["name"]]
            devices["config"] = [config]
        metadata = {"name": name, "namespace": NAMESPACE}
        return {"metadata": metadata, "spec": {"devices": devices}}, features

    def long_claim(self, name: str) -> Json:
        """A claim for which a search ends too late, or one time in three finds devices at once."""
        rng = self._rng
        exactly: Json = {"deviceClassName": self.class_name(LONG), "allocationMode": "ExactCount"}
        least = rng.choice((_LONG_DEVICES, _LONG_DEVICES, _LONG_DEVICES - 1))
        last = _cel(f'device.attributes["{LONG}"].index >= {least}')
        requests = [
            {"name": "r0", "exactly": {**exactly, "count": rng.randint(9, 14)}},
            {"name": "r1", "exactly": {**exactly, "count": 1, "selectors": [last]}},
        ]
        spec = {"devices": {"requests": requests}}
        return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}

    def _request(self, name: str, features: set[str]) -> Json:
        if self.sometimes(22):
            features.add(PRIORITIZED)
            ways = [
                {"name": f"s{n}", **self._asked(features, is_way=True)}
                for n in range(self._rng.randint(2, 3))
            ]
            return {"name": name, "firstAvailable": ways}
        return {"name": name, "exactly": self._asked(features)}

    def _asked(self, features: set[str], *, is_way: bool = False) -> Json:
        rng = self._rng
        kind = rng.choice(self.kinds)
        driver = GPU if kind == "model-a" else kind
        if driver in _OF_DRIVER:
            features.add(_OF_DRIVER[driver])
        asked: Json = {"deviceClassName": self.class_name(kind)}
        if self.sometimes(8):
            asked["allocationMode"] = "All"
        else:
            asked |= {"allocationMode": "ExactCount", "count": rng.choice((1, 1, 1, 2, 3))}
        if self.sometimes(40):
            asked["selectors"] = [_cel(self._expression(driver))]
        if self.sometimes(35):
            asked["tolerations"] = [rng.choice(TOLERATIONS)]
        if (driver == SHARE and self.sometimes(60)) or self.sometimes(5):
            features.add(CAPACITY)
            amount = rng.choice(("512Mi", "1500Mi", "2Gi", "5Gi", "9Gi"))
            asked["capacity"] = {"requests": {"memory": amount}}
        if not is_way and self.sometimes(12):
            features.add(ADMIN_ACCESS)
            asked["adminAccess"] = True
        return asked

    def _expression(self, driver: str) -> str:
        own = f'device.attributes["{driver}"]'
        return self._rng.choice(
            (
                f'{own}.model == "a"',
                f"{own}.index < 2",
                f'{own}.driverVersion.isGreaterThan(semver("1.5.0"))',
                f'device.capacity["{driver}"].memory.compareTo(quantity("4Gi")) >= 0',
                f"has({own}.fast) && {own}.fast",
                f"{own}.?fast.orValue(true)",
                'device.attributes["resource.kubernetes.io"].?numaNode.orValue(0) == 0',
                f'{own}.model.matches("^[bc]$")',
                f"{own}.fast",
                "device.allowMultipleAllocations",
            )
        )

    def _constraint(self, requests: list[Json]) -> Json:
        rng = self._rng
        made: Json = {}
        if self.sometimes(40):
            made["requests"] = [rng.choice(requests)["name"]]
        driver = rng.choice(DRIVERS)
        attribute = rng.choice(("resource.kubernetes.io/numaNode", f"{driver}/model"))
        made[rng.choice(("matchAttribute", "distinctAttribute"))] = attribute
        return made

    def allocated_claim(self, name: str) -> Json | None:
        """A claim that somebody else's pod has; its status is to be written after it is made."""
        rng = self._rng
        published = [one for one in self.slices if one["spec"].get("devices")]
        if not published:
            return None
        spec = rng.choice(published)["spec"]
        device = rng.choice(spec["devices"])
        result: Json = {
            "request": "r0",
            "driver": spec["driver"],
            "pool": spec["pool"]["name"],
            "device": device["name"],
        }
        if device.get("allowMultipleAllocations"):
            result["shareID"] = _uuid(rng)
            result["consumedCapacity"] = {"memory": rng.choice(("1Gi", "2Gi", "4Gi"))}
        elif self.sometimes(15):
            result["adminAccess"] = True
        for field in ("bindingConditions", "bindingFailureConditions"):
            if field in device:
                result[field] = device[field]
        exactly: Json = {"deviceClassName": self.class_name(spec["driver"]), "count": 1}
        exactly["allocationMode"] = "ExactCount"
        if "adminAccess" in result:
            exactly["adminAccess"] = True
        allocation: Json = {
            "devices": {"results": [result]},
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        }
        if "nodeName" in spec:
            where = {"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}
            allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [where]}]}
        return {
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"devices": {"requests": [{"name": "r0", "exactly": exactly}]}},
            "status": {"allocation": allocation},
        }

    # -- pods -----------------------------------------------------------------------------------

    def pod(self, name: str, claims: list[str], features: set[str]) -> Json:
        container: Json = {"name": "c", "image": "x"}
        if not claims or self.sometimes(6):
            features.add(EXTENDED_RESOURCE)
            resource = self._rng.choice(
                (EXTENDED, f"deviceclass.resource.kubernetes.io/{self.class_name('model-a')}")
            )
            amount = {resource: str(self._rng.randint(1, 2))}
            container["resources"] = {"requests": {**amount, "cpu": "100m"}, "limits": amount}
        spec: Json = {"containers": [container]}
        if claims:
            entries = [{"name": f"e{n}", "resourceClaimName": c} for n, c in enumerate(claims)]
            spec["resourceClaims"] = entries
        if self.sometimes(15):
            spec["nodeSelector"] = {"zone": self._rng.choice(ZONES)}
        return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def _cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def _opaque(driver: str, number: int) -> Json:
    return {"opaque": {"driver": driver, "parameters": {"kind": "Config", "number": number}}}


def _zone(zone: str) -> Json:
    where = {"key": "zone", "operator": "In", "values": [zone]}
    return {"nodeSelectorTerms": [{"matchExpressions": [where]}]}


def _uuid(rng: Random) -> str:
    text = f"{rng.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"
