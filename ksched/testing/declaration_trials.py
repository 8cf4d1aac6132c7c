"""Tests a plugin's declared dependencies with variants of nodes and pods.

A result that is declared to depend on the node alone must be the same without the pods on the node,
one that does not read inter-pod fields the same for a pod with other labels, and so on. A scheduler
would cache these results; here nothing is cached, the variants are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, TypeAlias

import msgspec

from ksched.api.objects import Affinity, Node, Pod
from ksched.cache.node_info import NodeInfo
from ksched.framework import FilterDependsOn, Scope, ScoreDependsOn, Status
from ksched.framework.depends_on import CACHED_SCOPES
from ksched.framework.runtime.declaration_checks import FalseDeclaration

Answers: TypeAlias = Mapping[str, Status] | Mapping[str, int]
Ask: TypeAlias = Callable[[Sequence[Node], Sequence[Pod], Pod], Answers | None]
"""Returns results by node for some nodes, pods on them and a pod; ``None`` if skipped."""

MAX_NODES_ALONE = 16
"""How many nodes are evaluated individually."""

OTHER_LABEL = {"ksched.testing/other": "pod"}
OTHER_CLAIM = "ksched-testing-other"


class DeclarationTrial:
    """Variants of an input for which the results must be equal."""

    def __init__(
        self,
        plugin: str,
        declared: FilterDependsOn | ScoreDependsOn,
        infos: Sequence[NodeInfo],
        pod: Pod,
        answers: Answers,
        ask: Ask,
    ) -> None:
        self._plugin = plugin
        self._declared = declared
        self._infos = infos
        self._pod = pod
        self._answers = answers
        self._ask = ask

    def run(self) -> None:
        """Raise ``FalseDeclaration`` if the result of a variant differs."""
        declared = self._declared
        nodes, pods = _content(self._infos)
        if declared.is_cached and not declared.reads_inter_pod_fields:
            other = _with_other_relations(self._pod)
            self._compare(nodes, pods, other, "reads_inter_pod_fields=False")
        # An epoch may depend on anything.
        if declared.scope not in CACHED_SCOPES or declared.epoch is not None:
            return
        spec = self._pod.spec
        if not declared.reads_claim_names and (spec.volumes or spec.resource_claims):
            other = _with_other_claims(self._pod)
            self._compare(nodes, pods, other, "reads_claim_names=False")
        scope = f"scope={declared.scope}"
        if declared.scope is Scope.NODE:
            self._compare(nodes, [], self._pod, scope)
        for info in self._infos[:MAX_NODES_ALONE]:
            self._compare(*_content([info]), self._pod, scope)
        if declared.scope is Scope.RESOURCES:
            self._compare_equal_amounts(scope)

    def _compare(self, nodes: Sequence[Node], pods: Sequence[Pod], pod: Pod, untrue: str) -> None:
        answers = self._ask(nodes, pods, pod) or {}
        for name, answer in answers.items():
            if answer != self._answers.get(name, answer):
                self._fail(name, answer, untrue)

    def _compare_equal_amounts(self, untrue: str) -> None:
        by_amounts: dict[object, str] = {}
        for info in self._infos:
            name = by_amounts.setdefault(info.amounts, info.name)
            if self._answers[name] != self._answers[info.name]:
                self._fail(name, self._answers[info.name], untrue)

    def _fail(self, node: str, answer: Status | int, untrue: str) -> NoReturn:
        raise FalseDeclaration(
            self._plugin,
            self._declared,
            untrue=untrue,
            method="filter_nodes" if isinstance(answer, Status) else "score_nodes",
            node=node,
            pod=self._pod.metadata.key,
            cached=self._answers[node],
            recomputed=answer,
        )


def _content(infos: Sequence[NodeInfo]) -> tuple[list[Node], list[Pod]]:
    nodes = [info.node for info in infos if info.node is not None]
    return nodes, [one.pod for info in infos for one in info.pods.values()]


def _with_other_relations(pod: Pod) -> Pod:
    """Return a pod that differs only in inter-pod fields."""
    meta, spec = pod.metadata, pod.spec
    affinity = spec.affinity and Affinity(node_affinity=spec.affinity.node_affinity)
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(meta, labels=OTHER_LABEL, owner_references=[]),
        spec=msgspec.structs.replace(spec, affinity=affinity, topology_spread_constraints=[]),
    )


def _with_other_claims(pod: Pod) -> Pod:
    volumes = [
        volume
        if (source := volume.persistent_volume_claim) is None
        else msgspec.structs.replace(
            volume,
            persistent_volume_claim=msgspec.structs.replace(source, claim_name=OTHER_CLAIM),
        )
        for volume in pod.spec.volumes
    ]
    claims = [
        one
        if one.resource_claim_name is None
        else msgspec.structs.replace(one, resource_claim_name=OTHER_CLAIM)
        for one in pod.spec.resource_claims
    ]
    spec = msgspec.structs.replace(pod.spec, volumes=volumes, resource_claims=claims)
    return msgspec.structs.replace(pod, spec=spec)
