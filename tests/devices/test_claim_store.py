"""Claims that are stored, assumed or in flight, and the devices they use.

Covers ``ksched.devices.allocated`` too.
"""

from __future__ import annotations

from typing import Any

import pytest

from ksched.api.devices import ResourceClaim
from ksched.cache.listers import Listers
from ksched.devices.claim_store import ClaimStore, NotAssumed
from ksched.testing.device_builders import DRIVER, ResourceClaimBuilder, make_resource_claim

KEY = (DRIVER, "n1")


def result(device: str, **more: Any) -> dict[str, Any]:
    return {"request": "r", "pool": "n1", "device": device, **more}


CLAIM = make_resource_claim("k").resource_version("1")
ALLOCATED = CLAIM.allocated(result("d1")).resource_version("2")


class World:
    def __init__(self, *claims: ResourceClaimBuilder) -> None:
        self.listers = Listers()
        self.store = self.listers.view(ClaimStore)
        self.lister = self.listers.require(ResourceClaim)
        for claim in claims:
            self.lister.put(claim.obj())

    @property
    def dedicated(self) -> set[str]:
        return set(self.store.devices.of(KEY).dedicated)


def test_devices_of_stored_claims_are_in_use() -> None:
    world = World(CLAIM)
    assert world.dedicated == set()
    world.lister.put(ALLOCATED.obj())
    assert world.dedicated == {"d1"}
    world.lister.put(CLAIM.resource_version("3").obj())
    assert world.dedicated == set()
    world.lister.put(ALLOCATED.resource_version("4").obj())
    world.lister.remove(ALLOCATED.obj())
    assert world.dedicated == set()


def test_admin_access_uses_nothing() -> None:
    assert World(CLAIM.allocated(result("d1", adminAccess=True))).dedicated == set()


def test_shares_add_up_and_end() -> None:
    half = result("d1", shareID="a", consumedCapacity={"m": "1"})
    other = result("d1", shareID="b", consumedCapacity={"m": "2"})
    world = World(CLAIM.allocated(half), make_resource_claim("l").allocated(other))
    shared = world.store.devices.of(KEY).shared["d1"]
    assert (shared.shares, shared.consumed) == (2, {"m": 3 * 10**9})
    world.lister.remove(CLAIM.obj())
    assert world.store.devices.of(KEY).shared["d1"].consumed == {"m": 2 * 10**9}
    world.lister.remove(make_resource_claim("l").obj())
    assert not world.store.devices.of(KEY).shared


def test_a_device_that_two_claims_have_stays_in_use_until_both_release_it() -> None:
    other = make_resource_claim("l").allocated(result("d1"))
    world = World(ALLOCATED, other)
    world.lister.remove(ALLOCATED.obj())
    assert world.dedicated == {"d1"}


def test_an_assumed_claim_counts_until_the_watch_brings_it_or_a_newer_one() -> None:
    world = World(CLAIM)
    world.store.assume(ALLOCATED.obj())
    assert world.dedicated == {"d1"}
    world.lister.put(CLAIM.obj())
    assert world.dedicated == {"d1"}, "what the watch brings is older"
    world.lister.put(ALLOCATED.obj())
    world.lister.put(CLAIM.resource_version("3").obj())
    assert world.dedicated == set()


def test_an_assumed_claim_that_was_deleted_is_gone() -> None:
    world = World(CLAIM)
    world.store.assume(ALLOCATED.obj())
    world.lister.remove(CLAIM.obj())
    assert world.dedicated == set()
    with pytest.raises(NotAssumed, match='could not find ResourceClaim "default/k"'):
        world.store.assume(ALLOCATED.obj())


def test_an_old_version_cannot_be_assumed() -> None:
    world = World(CLAIM.resource_version("9"))
    text = 'ResourceClaim "default/k" is out of sync (stored: 9, assume: 2)'
    with pytest.raises(NotAssumed) as raised:
        world.store.assume(ALLOCATED.obj())
    assert str(raised.value) == text


def test_what_was_assumed_is_forgotten_with_the_history_of_the_api_server() -> None:
    world = World(CLAIM)
    world.store.assume(ALLOCATED.obj())
    world.store.forget_assumed()
    assert world.dedicated == set()
    known = world.store.get("k", "default")
    assert known is not None
    assert known.metadata.resource_version == "1"


def test_a_claim_in_flight_keeps_its_devices_until_it_lands() -> None:
    world = World(CLAIM)
    allocation = ALLOCATED.obj().status.allocation
    assert allocation is not None
    world.store.add_in_flight("uid:default/k", allocation)
    assert world.store.is_in_flight("uid:default/k")
    assert world.dedicated == {"d1"}
    world.store.assume(ALLOCATED.obj())
    assert world.store.remove_in_flight("uid:default/k")
    assert not world.store.remove_in_flight("uid:default/k")
    assert world.dedicated == {"d1"}


def test_the_claim_of_extended_resources_is_found_by_its_pod() -> None:
    special = CLAIM.annotation({"resource.kubernetes.io/extended-resource-claim": "true"})
    world = World(special.owned_by("web"))
    found = world.store.extended_resource_claim("uid:default/web", "web")
    assert found is not None
    assert found.metadata.name == "k"
    assert world.store.extended_resource_claim("uid:default/web", "other") is None
    world.lister.remove(special.obj())
    assert world.store.extended_resource_claim("uid:default/web", "web") is None
