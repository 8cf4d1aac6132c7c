"""Random nodes, pods and namespaces that care for each other: spreading and inter-pod affinity.

As in ``random_clusters``, values come from small sets, so that pods mean each other often.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ksched.api.objects import (
    Affinity,
    Container,
    Labels,
    LabelSelector,
    LabelSelectorRequirement,
    Namespace,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    ReplicaSet,
    Service,
    ServiceSpec,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
    WorkloadSpec,
)
from lab.random_clusters import RandomCluster

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
NAMESPACES: Final = ("alpha", "beta", "gamma")
_KEYS = (HOSTNAME, HOSTNAME, ZONE, ZONE, "rack", "missing")
_POD_LABELS = {"app": ("web", "db"), "tier": ("1", "2"), "rev": ("r1", "r2")}
_TEAMS = ("red", "blue")


class RandomTopology(RandomCluster):
    """A source of objects for one test; equal randomness gives equal objects."""

    # -- nodes and namespaces --------------------------------------------------------------------

    def node(self, name: str) -> Node:
        """A large node, often with a host name, a zone (perhaps an empty one) and a rack."""
        labels: Labels = {}
        if self.sometimes(95):
            # Two nodes of the same host name are a mistake that happens.
            labels[HOSTNAME] = name if self.sometimes(90) else "twin"
        if self.sometimes(92):
            labels[ZONE] = self.one_of(("a", "b", "c", "") if self.sometimes(20) else ("a", "b"))
        if self.sometimes(80):
            labels["rack"] = self.one_of(("r1", "r2"))
        if self.sometimes():
            labels["disk"] = self.one_of(("ssd", "hdd"))
        taints = [Taint(key="team", effect=self.one_of(("NoSchedule", "PreferNoSchedule")))]
        return Node(
            metadata=ObjectMeta(name=name, uid=f"uid:{name}", labels=labels),
            spec=NodeSpec(taints=taints if self.sometimes(25) else []),
            status=NodeStatus(
                allocatable={"cpu": "64", "memory": "256Gi", "pods": "110"},
                declared_features=["UserNamespacesHostNetworkSupport"] if self.sometimes() else [],
            ),
        )

    def namespace(self) -> Namespace:
        labels = {"team": self.one_of(_TEAMS)} if self.sometimes(70) else {}
        return Namespace(metadata=ObjectMeta(name=self.one_of(NAMESPACES), labels=labels))

    def service(self) -> Service:
        metadata = ObjectMeta(name=self.one_of(("s1", "s2")), namespace=self.one_of(NAMESPACES))
        selector = self.one_of((None, {}, {"app": "web"}, {"app": "db"}, {"tier": "1"}))
        return Service(metadata=metadata, spec=ServiceSpec(selector=selector))

    def replica_set(self) -> ReplicaSet:
        metadata = ObjectMeta(name="set", namespace=self.one_of(NAMESPACES))
        return ReplicaSet(metadata=metadata, spec=WorkloadSpec(selector=self.selector()))

    # -- pods ------------------------------------------------------------------------------------

    def pod(self, name: str, node_name: str = "") -> Pod:
        """A pod that asks for nothing but company."""
        owner = OwnerReference(
            api_version="apps/v1", kind="ReplicaSet", name="set", controller=True
        )
        metadata = ObjectMeta(
            name=name,
            namespace=self.one_of(NAMESPACES),
            uid=f"uid:{name}",
            labels=self.pod_labels(),
            owner_references=[owner] if self.sometimes(40) else [],
        )
        spec = PodSpec(
            node_name=node_name,
            containers=[Container(name="c", image="pause:1")],
            affinity=self._affinity() if self.sometimes(65) else None,
            node_selector={"disk": "ssd"} if self.sometimes(15) else {},
            tolerations=[Toleration(key="team", operator="Exists")] if self.sometimes(40) else [],
            topology_spread_constraints=self.several(self._constraint, at_most=2)
            if self.sometimes(60)
            else [],
            host_network=self.sometimes(10),
            host_users=False if self.sometimes(20) else None,
        )
        return Pod(metadata=metadata, spec=spec)

    def pod_labels(self) -> Labels:
        return {
            key: self.one_of(values) for key, values in _POD_LABELS.items() if self.sometimes(80)
        }

    def selector(self) -> LabelSelector | None:
        """Mostly of some of the pods; now and then of all, or of none."""
        if self.sometimes(8):
            return self.one_of((None, LabelSelector()))
        if self.sometimes(60):
            key = self.one_of(tuple(_POD_LABELS))
            return LabelSelector(match_labels={key: self.one_of(_POD_LABELS[key])})
        return LabelSelector(match_expressions=[self._expression_over(_POD_LABELS)])

    def _expression_over(self, known: Mapping[str, tuple[str, ...]]) -> LabelSelectorRequirement:
        key = self.one_of(tuple(known))
        operator = self.one_of(("In", "NotIn", "Exists", "DoesNotExist"))
        values = [self.one_of(known[key])] if operator in ("In", "NotIn") else []
        return LabelSelectorRequirement(key=key, operator=operator, values=values)

    def _constraint(self) -> TopologySpreadConstraint:
        return TopologySpreadConstraint(
            max_skew=self.one_of((1, 1, 2, 3)),
            topology_key=self.one_of(_KEYS[1:5] if self.sometimes(98) else _KEYS),
            when_unsatisfiable=self.one_of(("DoNotSchedule", "ScheduleAnyway")),
            label_selector=self.selector(),
            min_domains=self.one_of((None, None, None, 2, 3)),
            node_affinity_policy=self.one_of((None, "Honor", "Ignore")),
            node_taints_policy=self.one_of((None, "Honor", "Ignore")),
            match_label_keys=["rev"] if self.sometimes(20) else [],
        )

    def _affinity(self) -> Affinity:
        selector = NodeSelector(
            node_selector_terms=[
                NodeSelectorTerm(
                    match_expressions=[
                        NodeSelectorRequirement(key="disk", operator="NotIn", values=["hdd"])
                    ]
                )
            ]
        )
        return Affinity(
            node_affinity=NodeAffinity(required=selector) if self.sometimes(15) else None,
            pod_affinity=self._rules(required_percent=35) if self.sometimes(60) else None,
            pod_anti_affinity=self._rules(required_percent=50) if self.sometimes(60) else None,
        )

    def _rules(self, required_percent: int) -> PodAffinity:
        required = (
            self.several(self._pod_term, at_most=2) if self.sometimes(required_percent) else []
        )
        return PodAffinity(
            required=required,
            preferred=self.several(self._weighted, at_most=2) if self.sometimes() else [],
        )

    def _weighted(self) -> WeightedPodAffinityTerm:
        weight = self.one_of((1, 3, 10, 100))
        return WeightedPodAffinityTerm(weight=weight, pod_affinity_term=self._pod_term())

    def _pod_term(self) -> PodAffinityTerm:
        return PodAffinityTerm(
            topology_key=self.one_of(_KEYS if self.sometimes(10) else _KEYS[:5]),
            label_selector=self.selector(),
            namespaces=self.several(lambda: self.one_of(NAMESPACES), at_most=2)
            if self.sometimes(30)
            else [],
            namespace_selector=self._namespace_selector() if self.sometimes(30) else None,
        )

    def _namespace_selector(self) -> LabelSelector:
        if self.sometimes(30):
            return LabelSelector()
        return LabelSelector(match_expressions=[self._expression_over({"team": _TEAMS})])
