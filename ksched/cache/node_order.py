"""The order in which nodes are evaluated: round-robin over zones.

It only matters for a search that stops early (``percentageOfNodesToScore``): such a search must not
see a single zone only.
"""

from __future__ import annotations

from itertools import zip_longest

from ksched.api.objects import Labels

ZONE_KEYS = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
REGION_KEYS = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")
_OLD_ZONE, _ZONE = ZONE_KEYS
_OLD_REGION, _REGION = REGION_KEYS


def zone_of(labels: Labels) -> str:
    """Region and zone as one key; empty if a node has neither label."""
    zone = labels.get(_OLD_ZONE)
    if zone is None:
        zone = labels.get(_ZONE, "")
    region = labels.get(_OLD_REGION)
    if region is None:
        region = labels.get(_REGION, "")
    return f"{region}:\x00:{zone}" if zone or region else ""


class NodeTree:
    """Node names by zone, both in order of arrival."""

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    def put(self, name: str, labels: Labels) -> None:
        zone = zone_of(labels)
        if self._zone_of.get(name) == zone:
            return
        self.remove(name)
        self._zone_of[name] = zone
        self._zones.setdefault(zone, {})[name] = None

    def remove(self, name: str) -> None:
        zone = self._zone_of.pop(name, None)
        if zone is None:
            return
        members = self._zones[zone]
        del members[name]
        if not members:
            del self._zones[zone]

    def interleaved(self) -> list[str]:
        """Return the first node of each zone, then the second of each, and so on.

        kube-scheduler: updateNodeInfoSnapshotList.
        """
        return [
            name for turn in zip_longest(*self._zones.values()) for name in turn if name is not None
        ]
