"""Pods for which room was made on a node, and which are not there yet."""

from __future__ import annotations

from ksched.cache.pod_info import PodInfo


class Nominator:
    """Nominated pods by node; a pod is nominated to at most one node.

    A nomination ends when the pod is assumed, deleted, bound by somebody else, or nominated anew.
    """

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}

    def add(self, pod: PodInfo, node_name: str | None = None) -> None:
        """Nominate a pod, instead of any nomination it had.

        Without a name the pod's own ``status.nominatedNodeName`` counts; an empty name only ends
        the old nomination. A pod that is on a node already is not nominated. Whoever calls this
        after an attempt has made sure that the pod still exists.
        """
        self.delete(pod.uid)
        if node_name is None:
            node_name = pod.pod.status.nominated_node_name
        if node_name and not pod.node_name:
            self._node_of[pod.uid] = node_name
            self._by_node.setdefault(node_name, {})[pod.uid] = pod

    def delete(self, uid: str) -> None:
        """End a pod's nomination, if it has one."""
        node_name = self._node_of.pop(uid, None)
        if node_name is None:
            return
        pods = self._by_node[node_name]
        del pods[uid]
        if not pods:
            del self._by_node[node_name]

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """Follow a change of the pod object."""
        kept = None
        if not (old.pod.status.nominated_node_name or new.pod.status.nominated_node_name):
            # The nomination was made here and the API server has not heard of it yet.
            kept = self._node_of.get(new.uid)
        self.add(new, kept)

    def node_of(self, uid: str) -> str | None:
        return self._node_of.get(uid)

    def by_node(self) -> dict[str, list[PodInfo]]:
        """All nominated pods by node."""
        return {name: list(pods.values()) for name, pods in self._by_node.items()}

    def expected_on(self, node_name: str, pod: PodInfo) -> list[PodInfo]:
        """The pods nominated to a node that are at least as important as a pod, itself not."""
        return [
            other
            for other in self._by_node.get(node_name, {}).values()
            if other.priority >= pod.priority and other.uid != pod.uid
        ]

    def expected_with(self, pod: PodInfo) -> dict[str, list[PodInfo]]:
        """The same for all nodes where there are any."""
        expected = {name: self.expected_on(name, pod) for name in self._by_node}
        return {name: pods for name, pods in expected.items() if pods}

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]:
        return list(self._by_node.get(node_name, {}).values())

    def __len__(self) -> int:
        return len(self._node_of)
