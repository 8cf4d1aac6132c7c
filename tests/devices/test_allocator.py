"""Which devices claims get: what kube-scheduler's allocator answered to the same inputs.

The vectors were made with upstream's own package (v1.36). Covers ``ksched.devices.results``,
``ksched.devices.requests``, ``ksched.devices.constraints`` and ``ksched.devices.slices`` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from ksched.api.devices import AllocationResult, ResourceClaim, ResourceSlice
from ksched.devices.allocated import AllocatedDevices
from ksched.devices.allocator import InvalidPools, WantedClaim, allocate
from ksched.devices.effort import Effort, SearchIsLong, SearchTimedOut
from ksched.devices.pools import NodeView
from ksched.devices.published_pools import Slices
from ksched.devices.requests import AllocationFailed, ClaimPlan
from ksched.devices.results import allocation_result
from ksched.devices.selector_cache import SelectorCache
from ksched.testing.builders import Builder
from ksched.testing.device_builders import (
    DRIVER,
    DeviceClassBuilder,
    consumes,
    make_device_class,
    make_resource_claim,
    make_slice,
    tainted,
)

CLAIM = make_resource_claim("k")
LABELS = {"z": "a", "w": "1"}


def allocations(
    claims: Sequence[Builder[ResourceClaim]],
    slices: Sequence[Builder[ResourceSlice]],
    *in_use: Builder[ResourceClaim],
    classes: Sequence[DeviceClassBuilder] = (make_device_class(),),
    node: str = "n1",
    effort: Effort | None = None,
) -> list[AllocationResult] | None:
    """Allocate claims on a node whose labels are ``LABELS``."""
    published, allocated, known = Slices(), AllocatedDevices(), {}
    for one in slices:
        published.put(one.obj())
    for claim in in_use:
        allocation = claim.obj().status.allocation
        assert allocation is not None
        allocated.add(allocation)
    for device_class in classes:
        known[device_class.obj().metadata.name] = device_class.obj()
    selectors = SelectorCache()
    objects = [claim.obj() for claim in claims]
    wanted = [
        WantedClaim(one.metadata.key, ClaimPlan(one.spec, known.get, selectors)) for one in objects
    ]
    effort = effort or Effort(10.0, is_in_thread=True)
    chosen = allocate(published.view(node, LABELS), allocated.of, wanted, effort)
    if chosen is None:
        return None
    numbers = iter(range(100))
    return [
        allocation_result(
            claim.metadata.name, one.plan, devices, node, lambda: f"share-{next(numbers)}"
        )
        for claim, one, devices in zip(objects, wanted, chosen, strict=True)
    ]


def the_search(
    claim: Builder[ResourceClaim], slices: Sequence[Builder[ResourceSlice]]
) -> tuple[NodeView, list[WantedClaim]]:
    published, known = Slices(), {DRIVER: make_device_class().obj()}
    for one in slices:
        published.put(one.obj())
    plan = ClaimPlan(claim.obj().spec, known.get, SelectorCache())
    return published.view("n1", LABELS), [WantedClaim("default/k", plan)]


def devices(found: list[AllocationResult] | None) -> list[str] | None:
    """``request:device`` of all results, or None without a solution."""
    if found is None:
        return None
    return [f"{result.request}:{result.device}" for one in found for result in one.devices.results]


def chosen(
    claims: Any, slices: Any, *in_use: Builder[ResourceClaim], **more: Any
) -> list[str] | None:
    claims = claims if isinstance(claims, list) else [claims]
    slices = slices if isinstance(slices, list) else [slices]
    return devices(allocations(claims, slices, *in_use, **more))


def in_use(*names: str, pool: str = "n1", **fields: Any) -> Builder[ResourceClaim]:
    results = [{"request": "x", "pool": pool, "device": name, **fields} for name in names]
    return make_resource_claim("other").allocated(*results)


def with_values(**values: str) -> Any:
    """A slice of devices with an attribute ``a``; a device of value ``-`` has none."""
    made = make_slice("n1")
    for name, value in values.items():
        made = made.device(name) if value == "-" else made.device(name, a=value)
    return made


A = f"{DRIVER}/a"


# -- constraints --------------------------------------------------------------------------------


def test_distinct_values_within_a_request_are_compared_with_the_previous_device_only() -> None:
    claim = CLAIM.request(count=3).constraint(distinct=A)
    assert chosen(claim, with_values(d1="x", d2="y", d3="x")) == ["r:d1", "r:d2", "r:d3"]
    two = CLAIM.request(count=2).constraint(distinct=A)
    assert chosen(two, with_values(d1="x", d2="x")) is None


def test_a_request_that_took_a_device_back_forgets_its_values() -> None:
    claim = CLAIM.request("r1", count=2).constraint("r1", distinct=A)
    claim = claim.request("r2", cel=f'device.attributes["{DRIVER}"].a == "y"')
    found = chosen(claim, with_values(d1="x", d2="y", d3="x"))
    assert found == ["r1:d1", "r1:d3", "r2:d2"]


def test_matching_values() -> None:
    claim = CLAIM.request(count=2).constraint(match=A)
    assert chosen(claim, with_values(d1="-", d2="x", d3="y", d4="x")) == ["r:d2", "r:d4"]


# -- admin access -------------------------------------------------------------------------------

ONE = make_slice("n1").device("d1")


def test_admin_access_and_others_in_one_claim_exclude_each_other() -> None:
    admin_first = CLAIM.request("r1", adminAccess=True).request("r2")
    assert chosen(admin_first, ONE) is None
    assert chosen(CLAIM.request("r1").request("r2", adminAccess=True), ONE) is None


def test_admin_access_of_a_later_claim_shares_a_device() -> None:
    normal, admin = CLAIM.request("r1"), make_resource_claim("k2").request("r2", adminAccess=True)
    assert chosen([normal, admin], ONE) == ["r1:d1", "r2:d1"]
    assert chosen([admin, normal], ONE) is None
    assert chosen(admin, ONE, in_use("d1")) == ["r2:d1"]


# -- all ----------------------------------------------------------------------------------------

TWO = make_slice("n1").device("d1").device("d2")


def test_all_devices() -> None:
    claim = CLAIM.request(all=True)
    assert chosen(claim, TWO) == ["r:d1", "r:d2"]
    assert chosen(claim, TWO, in_use("d1")) is None
    assert chosen(claim, make_slice("n1").device("d1").device("d2", fields=tainted())) is None
    assert chosen(CLAIM.request(all=True, cel="false"), TWO) is None


def test_more_devices_than_a_claim_may_have() -> None:
    many = make_slice("n1")
    for number in range(33):
        many = many.device(f"d{number}")
    text = "claim default/k: number of requested devices 33 exceeds the claim limit of 32"
    for claim in (CLAIM.request(all=True), CLAIM.request(count=33)):
        with pytest.raises(AllocationFailed, match=text):
            chosen(claim, many)


def test_all_devices_of_pools_that_are_being_updated() -> None:
    half = make_slice("n1", pool="half").pool(slices=2).device("x")
    counters = make_slice("n2", pool="c").pool(slices=2).counters(s={"m": "1"})
    for other in (half, counters):
        with pytest.raises(AllocationFailed, match="is currently being updated"):
            chosen(CLAIM.request(all=True), [ONE, other])


def test_a_violated_constraint_of_all_devices_ends_everything() -> None:
    claim = CLAIM.request(all=True).constraint(match=A)
    text = f"cannot add device {DRIVER}/n1/d2 because a claim constraint would not be satisfied"
    with pytest.raises(AllocationFailed, match=text):
        chosen(claim, with_values(d1="x", d2="y"))


# -- pools --------------------------------------------------------------------------------------


def test_a_pool_with_missing_slices_is_not_used() -> None:
    assert chosen(CLAIM.request(), ONE.pool(slices=2)) is None


def test_an_invalid_pool_changes_the_reason() -> None:
    twice = [
        make_slice("n1", name="s1").pool(slices=2).device("d1"),
        make_slice("n1", name="s2").pool(slices=2).device("d1"),
    ]
    with pytest.raises(InvalidPools):
        chosen(CLAIM.request(), twice)
    assert chosen(CLAIM.request(), [*twice, make_slice("n1", pool="ok").device("x")]) == ["r:x"]


def test_generations() -> None:
    old = make_slice("n1", name="old", pool="p").device("d1")
    newer = make_slice("n2", name="new", pool="p").pool(generation=2).device("d2")
    assert chosen(CLAIM.request(), [old, newer]) == ["r:d1"]
    assert chosen(CLAIM.request(), [old.pool(slices=2), newer]) is None


def test_pools_with_binding_conditions_come_last() -> None:
    conditions = {"bindingConditions": ["ok"], "bindingFailureConditions": ["bad"]}
    slices = [
        make_slice("n1", pool="a").device("a1", fields=conditions).device("a2"),
        make_slice("n1", pool="b").device("b1"),
        make_slice("n1", pool="c").device("c1"),
    ]
    assert chosen(CLAIM.request(count=3), slices) == ["r:b1", "r:c1", "r:a1"]


# -- counters -----------------------------------------------------------------------------------


def _partitions(*made: Any, **sets: dict[str, str]) -> list[Any]:
    counters = make_slice("n1", name="counters").pool(slices=2).counters(**sets)
    slices = make_slice("n1", name="devices").pool(slices=2)
    for name, fields in made:
        slices = slices.device(name, **fields)
    return [counters, slices]


def test_an_overcommitted_counter_blocks_its_pool() -> None:
    slices = _partitions(
        ("d1", {"fields": consumes("c1", m="2")}),
        ("d2", {"fields": consumes("c2", m="1")}),
        c1={"m": "1"},
        c2={"m": "1"},
    )
    assert chosen(CLAIM.request(), slices, in_use("d1")) is None
    plain = [slices[0], slices[1].device("plain")]
    assert chosen(CLAIM.request(), plain, in_use("d1")) == ["r:plain"]


def test_partitions_that_fit_together() -> None:
    slices = _partitions(
        ("whole", {"fields": consumes("c", m="4Gi")}),
        ("half1", {"fields": consumes("c", m="2Gi")}),
        ("half2", {"fields": consumes("c", m="2Gi")}),
        c={"m": "4Gi"},
    )
    assert chosen(CLAIM.request(), slices) == ["r:whole"]
    assert chosen(CLAIM.request(count=2), slices) == ["r:half1", "r:half2"]
    assert chosen(CLAIM.request(), slices, in_use("half2")) == ["r:half1"]


SHARED = {"allowMultipleAllocations": True}


def test_a_shareable_device_without_capacity_pays_its_counters_again_in_a_later_cycle() -> None:
    fields = {"fields": {**SHARED, **consumes("c", m="1")}}
    slices = _partitions(("d1", fields), c={"m": "1"})
    both = CLAIM.request("r1").request("r2")
    assert chosen(both, slices) == ["r1:d1", "r2:d1"]
    assert chosen(CLAIM.request(), slices, in_use("d1", shareID="s")) is None


def test_a_share_that_says_what_it_consumes_pays_for_the_others() -> None:
    memory = {"memory": {"value": "4Gi", "requestPolicy": {"default": "1Gi"}}}
    fields = {"fields": {**SHARED, **consumes("c", m="1")}, "capacity": memory}
    slices = _partitions(("d1", fields), c={"m": "1"})
    share = in_use("d1", shareID="s", consumedCapacity={"memory": "1Gi"})
    found = allocations([CLAIM.request()], slices, share)
    assert found is not None
    assert found[0].devices.results[0].consumed_capacity == {"memory": "1Gi"}


# -- capacity -----------------------------------------------------------------------------------


def test_shares_of_one_device() -> None:
    policy = {"value": "16Gi", "requestPolicy": {"default": "1Gi"}}
    shared = make_slice("n1").device("d1", fields=SHARED, capacity={"memory": policy})
    assert chosen(CLAIM.request(count=2), shared) is None
    asked = CLAIM.request("r1", capacity={"memory": "1Gi"})
    found = allocations([asked.request("r2", capacity={"memory": "1Gi"})], [shared])
    assert devices(found) == ["r1:d1", "r2:d1"]
    assert found is not None
    assert len({one.share_id for one in found[0].devices.results}) == 2
    claims = [CLAIM.request(), make_resource_claim("k2").request(capacity={"memory": "15Gi"})]
    found = allocations(claims, [shared])
    assert found is not None
    consumed = [one.devices.results[0].consumed_capacity for one in found]
    assert consumed == [{"memory": "1Gi"}, {"memory": "15Gi"}]


def test_a_dedicated_device_must_be_large_enough() -> None:
    slices = make_slice("n1").device("small", capacity={"memory": "512Mi"})
    slices = slices.device("large", capacity={"memory": "2Gi"})
    found = allocations([CLAIM.request(capacity={"memory": "1Gi"})], [slices])
    assert devices(found) == ["r:large"]
    assert found is not None
    assert found[0].devices.results[0].consumed_capacity is None
    assert chosen(CLAIM.request(capacity={f"{DRIVER}/memory": "1Gi"}), slices) is None


# -- alternatives -------------------------------------------------------------------------------


def test_the_first_alternative_that_can_be_had() -> None:
    claim = CLAIM.first_available(big={"count": 3}, small={"count": 1})
    assert chosen(claim, TWO) == ["r/small:d1"]
    every = CLAIM.first_available(every={"all": True}, one={"count": 1})
    assert chosen(every, TWO, in_use("d2")) == ["r/one:d1"]


# -- selectors ----------------------------------------------------------------------------------


def test_an_error_counts_only_before_the_device_that_is_chosen() -> None:
    asks = CLAIM.request(cel=f'device.attributes["{DRIVER}"].a == "x"')
    with pytest.raises(AllocationFailed) as raised:
        chosen(asks, with_values(d1="-", d2="x"))
    text = "claim default/k: selector #0: CEL runtime error: no such key: a"
    assert str(raised.value) == text
    assert chosen(asks, with_values(d1="x", d2="-")) == ["r:d1"]
    assert chosen(asks, with_values(d1="-", d2="x"), in_use("d1")) == ["r:d2"]


# -- the result ---------------------------------------------------------------------------------


def test_node_selectors_are_merged() -> None:
    slices = [
        make_slice(pool="p").selecting(z=["a", "b"]).device("p1"),
        make_slice(pool="q").selecting(z=["b", "a"]).device("q1"),
        make_slice(pool="t").selecting(w=["1"]).device("t1"),
    ]
    found = allocations([CLAIM.request(count=3)], slices)
    assert found is not None
    assert msgspec.to_builtins(found[0].node_selector) == {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "z", "operator": "In", "values": ["a", "b"]},
                    {"key": "w", "operator": "In", "values": ["1"]},
                ]
            }
        ]
    }


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, None),
        ({"bindsToNode": True}, [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]),
    ],
)
def test_devices_for_all_nodes(fields: Any, wanted: Any) -> None:
    found = allocations([CLAIM.request()], [make_slice().device("d1", fields=fields)])
    assert found is not None
    selector = found[0].node_selector
    got = None if selector is None else selector.node_selector_terms[0].match_fields
    assert (None if got is None else msgspec.to_builtins(got)) == wanted


def test_a_device_selector_of_two_terms_cannot_be_written() -> None:
    term = {"matchExpressions": [{"key": "z", "operator": "Exists"}]}
    device = {"nodeSelector": {"nodeSelectorTerms": [term, term]}}
    slices = make_slice().device("d1", fields=device)
    slices = slices.merge({"spec": {"allNodes": None, "perDeviceNodeSelection": True}})
    text = "create NodeSelector for claim k: unsupported ResourceSlice.NodeSelector with 2 terms"
    with pytest.raises(AllocationFailed, match=text):
        allocations([CLAIM.request()], [slices])


def test_configurations() -> None:
    device_class = make_device_class().config({"c": 1}).config({"c": 2})
    claim = CLAIM.request("r1").request("r2")
    claim = claim.config("r1", "r2", parameters={"k": 1}).config(parameters={"k": 2})
    found = allocations([claim], [TWO], classes=[device_class])
    assert found is not None
    shown = [
        (one.source, one.requests, msgspec.json.decode(one.opaque)["parameters"])
        for one in found[0].devices.config
    ]
    assert shown == [
        ("FromClass", ["r1", "r2"], {"c": 1}),
        ("FromClass", ["r1", "r2"], {"c": 2}),
        ("FromClaim", ["r1", "r2"], {"k": 1}),
        ("FromClaim", ["r1", "r2"], {"k": 1}),
        ("FromClaim", [], {"k": 2}),
    ]


def test_a_claim_without_requests() -> None:
    found = allocations([CLAIM], [ONE])
    assert msgspec.json.encode(found) == b'[{"devices":{}}]'


# -- the search ---------------------------------------------------------------------------------


def test_devices_that_are_alike_are_not_tried_one_by_one() -> None:
    many = make_slice("n1")
    for number in range(30):
        many = many.device(f"d{number}", model="a")
    claim = CLAIM.request("r1", count=20).request("r2", cel="false")
    assert chosen(claim, many) is None


@pytest.mark.parametrize(
    ("effort", "raised"),
    [
        (Effort(0.02), SearchIsLong),
        (Effort(0.02, is_in_thread=True), SearchTimedOut),
    ],
)
def test_a_search_that_does_not_end_is_given_up(effort: Effort, raised: type[Exception]) -> None:
    many = make_slice("n1")
    for number in range(30):
        many = many.device(f"d{number}", index=number)
    effort.restart()
    with pytest.raises(raised):
        chosen(CLAIM.request("r1", count=20).request("r2", cel="false"), many, effort=effort)


@pytest.mark.parametrize(
    "dear",
    [
        "lists.range(10000).all(x, x >= 0)",
        r"device.driver.matches('(a\x7b500\x7d)\x7b10\x7d')",
        "false || " * 500 + "true",
    ],
)
def test_selectors_that_take_long_are_evaluated_in_a_thread_and_remembered(dear: str) -> None:
    claim, slices = CLAIM.request(cel=dear), [make_slice("n1").device("d")]
    view, wanted = the_search(claim, slices)
    with pytest.raises(SearchIsLong):
        allocate(view, AllocatedDevices().of, wanted, Effort(10.0))
    in_thread = allocate(view, AllocatedDevices().of, wanted, Effort(10.0, is_in_thread=True))
    assert allocate(view, AllocatedDevices().of, wanted, Effort(10.0)) == in_thread


def test_a_device_that_other_nodes_see_may_have_the_same_name() -> None:
    both = [
        make_slice("n1", name="s1", pool="p").pool(slices=2).device("d"),
        make_slice("n2", name="s2", pool="p").pool(slices=2).device("d"),
    ]
    assert chosen(CLAIM.request(), both) == ["r:d"]
    with pytest.raises(InvalidPools):
        chosen(CLAIM.request(), [both[0], both[1].merge({"spec": {"nodeName": "n1"}})])


def test_counters_that_are_withdrawn_take_no_other_devices_with_them() -> None:
    published = Slices()
    published.put(make_slice("n1").device("d").obj())
    counters = make_slice("n1", name="counters", pool="board").counters(c={"u": "1"}).obj()
    published.put(counters)
    published.remove("counters")
    assert [one.name for one, _, _ in published.view("n1", LABELS).candidates] == ["d"]


def test_a_pod_may_want_more_devices_than_python_nests_calls() -> None:
    slices = []
    for pool in range(12):
        made = make_slice("n1", pool=f"p{pool:02}")
        for number in range(64):
            made = made.device(f"d{number}")
        slices.append(made)
    claims = [make_resource_claim(f"k{number}").request(count=32) for number in range(24)]
    found = chosen(claims, slices)
    assert found is not None
    assert len(found) == 24 * 32
