"""The newest version of every claim, whether from the watch or from a response of the API server.

A claim that was written is *assumed*: the API server's response replaces the watched version until
the watch delivers that version or a newer one. A claim whose devices are chosen but not written yet
is *in flight*. The devices of both are in use. Shared by all profiles
(``listers.view(ClaimStore)``), so that no device is allocated twice.

Follows util/assumecache and dynamicresources/dra_manager.go (v1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ksched.api.devices import (
    EXTENDED_RESOURCE_CLAIM,
    AllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from ksched.cache.listers import Listers
from ksched.devices.allocated import AllocatedDevices


class NotAssumed(Exception):
    """A claim cannot be assumed: it is unknown, or a newer version of it is known."""


class ClaimStore:
    """All claims, assumed ones and those in flight included, and the devices in use."""

    def __init__(self, listers: Listers) -> None:
        self.lister = listers.require(ResourceClaim)
        self.devices = AllocatedDevices()
        self.generation = 0
        """Grows with every change of a claim or of the claims in flight."""
        self._latest: dict[str, ResourceClaim] = {}
        self._assumed: set[str] = set()
        self._in_flight: dict[str, AllocationResult] = {}
        """By UID of the claim."""
        self._extended: dict[str, str] = {}
        """Keys of the claims for extended resources, by UID of their pod."""
        self.lister.follow(self._listed)

    def get(self, name: str, namespace: str) -> ResourceClaim | None:
        return self._latest.get(f"{namespace}/{name}")

    def __iter__(self) -> Iterator[ResourceClaim]:
        return iter(self._latest.values())

    # -- written claims -------------------------------------------------------------------------

    def assume(self, claim: ResourceClaim) -> None:
        """Use a claim as the API server returned it; raises ``NotAssumed``.

        kube-scheduler: AssumeCache.Assume.
        """
        key = claim.metadata.key
        known = self._latest.get(key)
        if known is None:
            raise NotAssumed(f'could not find ResourceClaim "{key}"')
        if _is_newer(known, claim):
            stored, version = known.metadata.resource_version, claim.metadata.resource_version
            text = f'ResourceClaim "{key}" is out of sync (stored: {stored}, assume: {version})'
            raise NotAssumed(text)
        self._assumed.add(key)
        self._replace(key, claim)

    @property
    def assumed(self) -> Mapping[str, ResourceClaim]:
        """The assumed claims by key."""
        return {key: self._latest[key] for key in self._assumed}

    def forget_assumed(self) -> None:
        """Return to the watched versions: the API server may have lost what it returned."""
        for key in tuple(self._assumed):
            self.forget(key)

    def forget(self, key: str) -> None:
        """Return to the watched version of one claim, if it is assumed."""
        if key in self._assumed:
            name = self._latest[key].metadata
            self._assumed.discard(key)
            self._replace(key, self.lister.get(name.name, name.namespace))

    def _listed(self, key: str) -> None:
        namespace, _, name = key.rpartition("/")
        listed = self.lister.get(name, namespace)
        known = self._latest.get(key)
        if key in self._assumed:
            if listed is not None and known is not None and not _is_newer(listed, known):
                # The watch delivered the assumed version or an older one.
                if listed.metadata.resource_version == known.metadata.resource_version:
                    self._assumed.discard(key)
                return
            self._assumed.discard(key)
        self._replace(key, listed)

    def _replace(self, key: str, claim: ResourceClaim | None) -> None:
        before = self._latest.get(key)
        self.generation += 1
        if claim is None:
            self._latest.pop(key, None)
        else:
            self._latest[key] = claim
        self._index_extended(key, before, claim)
        old = None if before is None else before.status.allocation
        new = None if claim is None else claim.status.allocation
        if _results(old) != _results(new):
            # Add before remove: a device in both allocations is never free in between.
            if new is not None:
                self.devices.add(new)
            if old is not None:
                self.devices.remove(old)

    def _index_extended(
        self, key: str, before: ResourceClaim | None, after: ResourceClaim | None
    ) -> None:
        for claim, is_new in ((before, False), (after, True)):
            pod = None if claim is None else extended_resource_pod(claim)
            if pod is None:
                continue
            if is_new:
                self._extended[pod] = key
            elif self._extended.get(pod) == key:
                del self._extended[pod]

    def extended_resource_claim(self, pod_uid: str, pod_name: str) -> ResourceClaim | None:
        """Return the claim created for a pod's extended resources.

        kube-scheduler: findExtendedResourceClaim.
        """
        claim = self._latest.get(self._extended.get(pod_uid, ""))
        if claim is None or not any(
            one.name == pod_name and one.uid == pod_uid and one.controller
            for one in claim.metadata.owner_references
        ):
            return None
        return claim

    # -- claims in flight -----------------------------------------------------------------------

    @property
    def in_flight(self) -> Mapping[str, AllocationResult]:
        """The devices of claims in flight, by UID of the claim; read-only."""
        return self._in_flight

    def is_in_flight(self, uid: str) -> bool:
        return uid in self._in_flight

    def add_in_flight(self, uid: str, allocation: AllocationResult) -> None:
        """Count the devices chosen for a claim as in use, until ``remove_in_flight``.

        kube-scheduler: SignalClaimPendingAllocation.
        """
        self.remove_in_flight(uid)
        self._in_flight[uid] = allocation
        self.devices.add(allocation)
        self.generation += 1

    def remove_in_flight(self, uid: str) -> bool:
        """Call when a claim was written, or will not be; False if it was not in flight.

        kube-scheduler: RemoveClaimPendingAllocation.
        """
        allocation = self._in_flight.pop(uid, None)
        if allocation is None:
            return False
        self.devices.remove(allocation)
        self.generation += 1
        return True


def _results(allocation: AllocationResult | None) -> list[DeviceRequestAllocationResult]:
    return [] if allocation is None else allocation.devices.results


def extended_resource_pod(claim: ResourceClaim) -> str | None:
    """Return the UID of the pod for whose extended resources a claim was created."""
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true":
        return None
    owners = (one.uid for one in claim.metadata.owner_references if one.controller)
    return next(owners, None)


def _is_newer(one: ResourceClaim, other: ResourceClaim) -> bool:
    version, than = one.metadata.resource_version, other.metadata.resource_version
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
