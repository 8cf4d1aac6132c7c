"""Where a pod's volumes can be reached, matched or provisioned: the filter of VolumeBinding.

Follows plugins/volumebinding/binder.go: FindPodVolumes (v1.36), for many nodes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ksched.api.label_selectors import IN, requirement_problems
from ksched.api.node_selectors import NodeTerms
from ksched.api.quantity import to_nanos, value
from ksched.api.storage import (
    NO_PROVISIONER,
    SELECTED_NODE,
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
)
from ksched.framework import Listers, NodeInfo, NodeRows
from ksched.framework.assumed_volumes import Volumes, compile_affinity
from ksched.framework.plugins.volumes.capacities import Capacities
from ksched.framework.plugins.volumes.csi_migration import (
    InTreePlugin,
    Untranslatable,
    in_tree_plugin,
    translated_affinity,
)
from ksched.framework.plugins.volumes.matching import (
    CannotMatch,
    Requirements,
    find_served,
    match_on_node,
    reachable,
    requirements_of,
)

Bools = NDArray[np.bool_]
Codes = NDArray[np.int16]

NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, VOLUME_MISSING = 1, 2, 4, 8
"""Reasons against a node, as bits."""


class PodClaims(NamedTuple):
    """The claims of a pod that may be placed: bound ones, and those waiting for a consumer.

    kube-scheduler: PodVolumeClaims.
    """

    bound: Sequence[PersistentVolumeClaim]
    delayed: Sequence[PersistentVolumeClaim]


class Placement(NamedTuple):
    """The volumes and provisionings of a pod's waiting claims on one node."""

    static: Sequence[tuple[PersistentVolumeClaim, PersistentVolume]]
    provisioned: Sequence[PersistentVolumeClaim]


class VolumeFinder:
    """Finds volumes for one profile; assumed volumes are shared by all profiles."""

    def __init__(self, listers: Listers) -> None:
        self.volumes = listers.view(Volumes)
        self.classes = listers.require(StorageClass)
        self._csi_nodes = listers.require(CSINode)
        self._drivers = listers.require(CSIDriver)
        self._capacities = Capacities(listers)

    def epoch(self, claims: PodClaims) -> object:
        """Return a value that is constant while no verdict can change, node changes apart."""
        bound = [self.volumes.facts(claim.spec.volume_name) for claim in claims.bound]
        facts: list[object] = [self._csi_nodes.generation, *claims.bound, *bound]
        if claims.delayed:
            facts += [*claims.delayed]
            facts += [self.volumes.of_class(one.class_name).generation for one in claims.delayed]
            facts += [self.classes.generation, self._drivers.generation]
            facts.append(self._capacities.generation)
        return facts

    def judge(self, claims: PodClaims, nodes: NodeRows) -> Codes:
        """Return the reasons against each node as bits; raises ``CannotMatch``.

        kube-scheduler: FindPodVolumes.
        """
        codes = np.zeros(len(nodes), np.int16)
        self._check_bound(claims.bound, nodes, codes)
        if claims.delayed:
            self._check_delayed(claims.delayed, nodes, codes)
        return codes

    def place(self, claims: PodClaims, node: NodeInfo) -> Placement:
        """Choose volumes and provisionings for the waiting claims on a node that passed."""
        selected, wanted = self._sort(claims.delayed)
        matches = match_on_node(wanted, node.labels)
        pairs = [(one.claim, match) for one, match in zip(wanted, matches, strict=True)]
        return Placement(
            [(claim, match.volume) for claim, match in pairs if match is not None],
            [*selected, *(claim for claim, match in pairs if match is None)],
        )

    # -- bound claims ---------------------------------------------------------------------------

    def _check_bound(
        self, claims: Sequence[PersistentVolumeClaim], nodes: NodeRows, codes: Codes
    ) -> None:
        """kube-scheduler: checkBoundClaims."""
        passing = np.ones(len(nodes), np.bool_)
        for claim in claims:
            facts = self.volumes.facts(claim.spec.volume_name)
            if facts is None:
                codes[passing] |= VOLUME_MISSING
                return
            if facts.affinity is None and _replaced_plugin(facts.volume) is None:
                # It can be used everywhere.
                continue
            in_reach = self._in_reach(facts.volume, facts.affinity, nodes)
            codes[passing & ~in_reach] |= NODE_CONFLICT
            passing &= in_reach

    def _in_reach(
        self, volume: PersistentVolume, affinity: NodeTerms | None, nodes: NodeRows
    ) -> Bools:
        in_reach = reachable(affinity, nodes)
        plugin = _replaced_plugin(volume)
        if plugin is None:
            return in_reach
        is_migrated = np.array([self._is_migrated(plugin, name) for name in nodes.names], np.bool_)
        if not is_migrated.any():
            return in_reach
        try:
            translated = compile_affinity(translated_affinity(plugin, volume))
        except Untranslatable as problem:
            raise CannotMatch(f"could not translate pv: {problem}") from problem
        return np.where(is_migrated, reachable(translated, nodes), in_reach)

    def _is_migrated(self, plugin: InTreePlugin, node_name: str) -> bool:
        """kube-scheduler: isPluginMigratedToCSIOnNode, isCSIMigrationOnForPlugin."""
        csi_node = self._csi_nodes.get(node_name)
        return csi_node is not None and plugin.name in csi_node.migrated_plugins

    def is_reachable(self, volume: PersistentVolume, nodes: NodeRows) -> Bools:
        """Mark the nodes from which a volume can be used."""
        return self._in_reach(volume, compile_affinity(volume.spec.node_affinity), nodes)

    # -- claims that wait for a consumer --------------------------------------------------------

    def _check_delayed(
        self, claims: Sequence[PersistentVolumeClaim], nodes: NodeRows, codes: Codes
    ) -> None:
        """Match claims with volumes, and check that the others can be provisioned."""
        selected, wanted = self._sort(claims)
        passing = np.ones(len(nodes), np.bool_)
        for claim in selected:
            passing &= nodes.named(claim.metadata.annotations[SELECTED_NODE])
        codes[~passing] |= BIND_CONFLICT
        if not passing.any():
            return
        for claim in selected:
            self._check_provisioning(claim, passing, nodes, codes)
        for one, served in zip(wanted, find_served(wanted, nodes), strict=True):
            self._check_provisioning(one.claim, passing & ~served, nodes, codes)

    def _sort(
        self, claims: Sequence[PersistentVolumeClaim]
    ) -> tuple[list[PersistentVolumeClaim], list[Requirements]]:
        """Return claims that are being provisioned for some node, and the others by size."""
        selected = [one for one in claims if SELECTED_NODE in one.metadata.annotations]
        others = [one for one in claims if SELECTED_NODE not in one.metadata.annotations]
        others.sort(key=lambda one: to_nanos(one.request))
        return selected, [
            requirements_of(one, self.volumes.of_class(one.class_name)) for one in others
        ]

    def _check_provisioning(
        self, claim: PersistentVolumeClaim, wanted: Bools, nodes: NodeRows, codes: Codes
    ) -> None:
        """Check, on nodes that passed so far, that a volume can be provisioned.

        kube-scheduler: checkVolumeProvisions.
        """
        wanted = wanted & ((codes & (BIND_CONFLICT | NOT_ENOUGH_SPACE)) == 0)
        if not wanted.any():
            return
        storage_class = self.classes.get(claim.class_name)
        if storage_class is None:
            raise CannotMatch(f'failed to find storage class "{claim.class_name}"')
        if storage_class.provisioner in ("", NO_PROVISIONER):
            codes[wanted] |= BIND_CONFLICT
            return
        allowed = _allowed(storage_class.allowed_topologies, nodes)
        codes[wanted & ~allowed] |= BIND_CONFLICT
        driver = self._drivers.get(storage_class.provisioner)
        asked_for = "storage" in claim.spec.resources.requests
        if driver is not None and driver.spec.storage_capacity and asked_for:
            name, size_bytes = storage_class.metadata.name, value(claim.request)
            enough = self._capacities.suffice(name, size_bytes, nodes)
            codes[wanted & allowed & ~enough] |= NOT_ENOUGH_SPACE


def _replaced_plugin(volume: PersistentVolume) -> InTreePlugin | None:
    """The in-tree plugin of a volume that a CSI driver may have replaced on a node."""
    plugin = in_tree_plugin(volume.spec)
    return plugin if plugin is not None and plugin.is_replaced else None


def _allowed(terms: Sequence[TopologySelectorTerm], nodes: NodeRows) -> Bools:
    """Mark the nodes in the topologies of a class; without any, all nodes."""
    if not terms:
        return np.ones(len(nodes), np.bool_)
    found = np.zeros(len(nodes), np.bool_)
    for term in terms:
        wanted = term.match_label_expressions
        # An empty term, and one that cannot be parsed, allows nothing.
        if not wanted or any(requirement_problems("", one.key, IN, one.values) for one in wanted):
            continue
        inside = np.ones(len(nodes), np.bool_)
        for one in wanted:
            inside &= nodes.label(one.key).test(set[str | None](one.values).__contains__)
        found |= inside
    return found
