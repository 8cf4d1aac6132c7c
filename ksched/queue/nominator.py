"""Nominated pods: preemption freed a node for each, but it is not assumed there yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property

from ksched.cache.change_log import ChangeLog, Cursor
from ksched.cache.dry_run_table import amounts_of
from ksched.cache.pod_info import PodInfo
from ksched.cache.recently_used import RecentlyUsed
from ksched.tuning import NOMINATED_PRIORITIES_CACHED


class ExpectedPods:
    """The pods nominated to one node that filters must account for; never empty."""

    def __init__(self, pods: Iterable[PodInfo]) -> None:
        self.pods = tuple(pods)

    @cached_property
    def amounts(self) -> Mapping[int, int]:
        """Their summed requests, by line of ``DryRunTable.amounts``."""
        total: Counter[int] = Counter()
        for pod in self.pods:
            for line, amount in amounts_of(pod):
                total[line] += amount
        return total

    @cached_property
    def key(self) -> frozenset[tuple[int, int]]:
        """Equal for pods that add the same amounts."""
        return frozenset(self.amounts.items())


class Nominations(Mapping[str, ExpectedPods]):
    """By node, the nominated pods that filters for one pod must account for; always current."""

    __slots__ = ("_own", "log", "others", "own_node", "priority")

    def __init__(
        self,
        priority: int,
        others: Mapping[str, ExpectedPods],
        log: ChangeLog[str],
        own_node: str = "",
        own: ExpectedPods | None = None,
    ) -> None:
        self.priority = priority
        self.others = others
        """For every pod of this priority; on ``own_node`` the pod itself is among them."""
        self.log = log
        """Nodes whose nominations changed."""
        self.own_node = own_node
        """Where the pod itself is nominated to."""
        self._own = own

    def __getitem__(self, node_name: str) -> ExpectedPods:
        if node_name != self.own_node:
            return self.others[node_name]
        if self._own is None:
            raise KeyError(node_name)
        return self._own

    def on(self, node_name: str) -> ExpectedPods | None:
        """``get``, without the cost of an exception where there are none."""
        return self._own if node_name == self.own_node else self.others.get(node_name)

    def amounts_on(self, node_name: str) -> Hashable:
        """What the pods nominated to a node add to its amounts; equal where they add the same."""
        expected = self.on(node_name)
        return None if expected is None else expected.key

    def __iter__(self) -> Iterator[str]:
        is_alone = self._own is None
        return (name for name in self.others if not (is_alone and name == self.own_node))

    def __len__(self) -> int:
        is_left_out = self._own is None and self.own_node in self.others
        return len(self.others) - is_left_out


class Nominator:
    """Nominated pods by node; a pod is nominated to at most one node.

    A nomination ends when the pod is assumed, deleted, bound by another scheduler, or nominated
    again.
    """

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}
        self._expected: RecentlyUsed[int, dict[str, ExpectedPods]] = RecentlyUsed()
        """By priority and node, the pods of at least that priority."""
        self._log: ChangeLog[str] = ChangeLog()
        """Nodes whose nominations changed."""

    def add(self, pod: PodInfo, node_name: str | None = None) -> None:
        """Nominate a pod; replaces its previous nomination.

        Without a name, the pod's ``status.nominatedNodeName`` is used; an empty name only ends the
        previous nomination. A pod that is assigned to a node is not nominated. After an attempt,
        the caller has to check that the pod still exists.

        kube-scheduler: AddNominatedPod, addNominatedPodUnlocked.
        """
        self.delete(pod.uid)
        if node_name is None:
            node_name = pod.pod.status.nominated_node_name
        if node_name and not pod.node_name:
            self._node_of[pod.uid] = node_name
            self._by_node.setdefault(node_name, {})[pod.uid] = pod
            self._changed(node_name)

    def delete(self, uid: str) -> None:
        """Remove a pod's nomination, if any. kube-scheduler: DeleteNominatedPodIfExists,
        deleteUnlocked."""
        node_name = self._node_of.pop(uid, None)
        if node_name is None:
            return
        pods = self._by_node[node_name]
        del pods[uid]
        if not pods:
            del self._by_node[node_name]
        self._changed(node_name)

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """Apply an update of the pod object. kube-scheduler: UpdateNominatedPod."""
        node_name = None
        if not (old.pod.status.nominated_node_name or new.pod.status.nominated_node_name):
            # The nomination was made here; the pod in the API server does not show it yet.
            node_name = self._node_of.get(new.uid)
        self.add(new, node_name)

    def node_of(self, uid: str) -> str | None:
        return self._node_of.get(uid)

    def by_node(self) -> dict[str, list[PodInfo]]:
        """Return all nominated pods by node."""
        return {name: list(pods.values()) for name, pods in self._by_node.items()}

    def expected_on(self, node_name: str, pod: PodInfo) -> ExpectedPods | None:
        """Return the other pods nominated to a node whose priority is at least the pod's."""
        if self._node_of.get(pod.uid) == node_name:
            return self._select(node_name, pod.priority, pod.uid)
        return self._of_priority(pod.priority).get(node_name)

    def expected_with(self, pod: PodInfo) -> Nominations:
        """Return ``expected_on`` for every node that has such pods."""
        others = self._of_priority(pod.priority)
        node_name = self._node_of.get(pod.uid)
        if node_name is None:
            return Nominations(pod.priority, others, self._log)
        own = self._select(node_name, pod.priority, pod.uid)
        return Nominations(pod.priority, others, self._log, node_name, own)

    def _of_priority(self, priority: int) -> dict[str, ExpectedPods]:
        expected = self._expected.get(priority)
        if expected is None:
            selected = ((name, self._select(name, priority)) for name in self._by_node)
            expected = {name: pods for name, pods in selected if pods is not None}
            self._expected.put(priority, expected, NOMINATED_PRIORITIES_CACHED)
        return expected

    def _select(self, node_name: str, priority: int, without: str = "") -> ExpectedPods | None:
        pods = [
            pod
            for uid, pod in self._by_node.get(node_name, {}).items()
            if pod.priority >= priority and uid != without
        ]
        return ExpectedPods(pods) if pods else None

    def _changed(self, node_name: str) -> None:
        self._log.append(node_name)
        for priority, expected in self._expected.items():
            pods = self._select(node_name, priority)
            if pods is None:
                expected.pop(node_name, None)
            else:
                expected[node_name] = pods

    def cursor(self) -> Cursor[str]:
        """Return a cursor over the nodes whose nominations changed."""
        return self._log.cursor()

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]:
        """kube-scheduler: nominatedPodToInfo."""
        return list(self._by_node.get(node_name, {}).values())

    def __len__(self) -> int:
        return len(self._node_of)
