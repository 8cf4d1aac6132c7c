"""The allocation result that is written to a claim, from its chosen devices.

Follows structured/internal/incubating/allocator_incubating.go (v1.36).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ksched.api.devices import (
    FROM_CLAIM,
    FROM_CLASS,
    MAX_SUBREQUESTS,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
)
from ksched.api.label_selectors import IN
from ksched.api.node_selectors import NODE_NAME_FIELD
from ksched.api.objects import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from ksched.devices.allocator import ChosenDevice
from ksched.devices.requests import AllocationFailed, ClaimPlan


def allocation_result(
    claim_name: str,
    plan: ClaimPlan,
    chosen: Sequence[ChosenDevice],
    node_name: str,
    make_share_id: Callable[[], str],
) -> AllocationResult:
    """Build the allocation of a claim; raises ``AllocationFailed``."""
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=[_result(one, make_share_id) for one in chosen],
            config=_config(plan, chosen),
        ),
        node_selector=node_selector(claim_name, chosen, node_name),
    )


def subrequest_score(plan: ClaimPlan, requests: frozenset[str]) -> int:
    """Score the chosen subrequests by preference. kube-scheduler: computeScore."""
    return sum(
        MAX_SUBREQUESTS - index
        for request in plan.spec.devices.requests
        for index, one in enumerate(request.first_available)
        if f"{request.name}/{one.name}" in requests
    )


def _result(one: ChosenDevice, make_share_id: Callable[[], str]) -> DeviceRequestAllocationResult:
    request, device = one.request, one.device.shape.device
    driver, pool = one.device.published_by.pool
    is_share = one.consumed is not None
    consumed = {name: amount for name, (amount, _) in (one.consumed or {}).items()}
    return DeviceRequestAllocationResult(
        request=request.full_name,
        driver=driver,
        pool=pool,
        device=one.device.name,
        admin_access=True if request.admin_access else None,
        tolerations=list(request.tolerations),
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=make_share_id() if is_share else None,
        consumed_capacity=consumed or None,
    )


def _config(plan: ClaimPlan, chosen: Sequence[ChosenDevice]) -> list[DeviceAllocationConfiguration]:
    """Configurations of the classes, then those of the claim, once for each request they name."""
    taken = {one.request.full_name for one in chosen}
    ways = [
        way
        for request in plan.requests
        for way in request.ways
        if not request.has_subrequests or way.full_name in taken
    ]
    by_class: dict[str, list[str]] = {}
    for way in ways:
        if way.device_class is not None:
            by_class.setdefault(way.device_class.metadata.name, []).append(way.full_name)
    found = []
    for way in ways:
        names = by_class.pop(way.device_class.metadata.name, None) if way.device_class else None
        if names is not None and way.device_class is not None:
            found += [
                DeviceAllocationConfiguration(source=FROM_CLASS, requests=names, opaque=one.opaque)
                for one in way.device_class.spec.config
            ]
    for declared in plan.spec.devices.config:
        wanted = declared.requests
        times = sum(way.parent in wanted or way.full_name in wanted for way in ways)
        made = DeviceAllocationConfiguration(
            source=FROM_CLAIM, requests=wanted, opaque=declared.opaque
        )
        found += [made] * (times if wanted else 1)
    return found


def node_selector(
    claim_name: str, chosen: Sequence[ChosenDevice], node_name: str
) -> NodeSelector | None:
    """The nodes that can use the devices; ``None``: all. kube-scheduler: createNodeSelector."""
    expressions: list[NodeSelectorRequirement] = []
    fields: list[NodeSelectorRequirement] = []
    for one in chosen:
        nodes = one.device.nodes
        if nodes.node_name or one.device.shape.device.binds_to_node:
            only = NodeSelectorRequirement(key=NODE_NAME_FIELD, operator=IN, values=[node_name])
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[only])])
        if nodes.selector is None:
            continue
        terms = nodes.selector.node_selector_terms
        if len(terms) != 1:
            text = f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            raise AllocationFailed(f"create NodeSelector for claim {claim_name}: {text}")
        _merge(expressions, terms[0].match_expressions)
        _merge(fields, terms[0].match_fields)
    if not expressions and not fields:
        return None
    term = NodeSelectorTerm(match_expressions=expressions, match_fields=fields)
    return NodeSelector(node_selector_terms=[term])


def _merge(known: list[NodeSelectorRequirement], more: list[NodeSelectorRequirement]) -> None:
    for one in more:
        if not any(_is_same(one, other) for other in known):
            known.append(one)


def _is_same(one: NodeSelectorRequirement, other: NodeSelectorRequirement) -> bool:
    return (one.key, one.operator) == (other.key, other.operator) and set(one.values) == set(
        other.values
    )
