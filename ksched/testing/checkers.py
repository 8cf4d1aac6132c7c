"""Invariants of any cluster at any time, checked independently of the code under test.

``Ledger`` keeps its own accounts of the API server's pods as they change, so that a node that is
overcommitted for an instant is detected. ``Checkers`` adds what may be violated briefly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.json import encode

from ksched.api.decoding import decode_node, decode_pod
from ksched.api.objects import Node, Pod
from ksched.api.pod_resources import amounts, pod_requests_with_status
from ksched.apiserver import served_resources as resources
from ksched.apiserver.object_store import DELETED, Change, Entry
from ksched.queue.places import Place

if TYPE_CHECKING:
    from ksched.testing.harness import Cluster

PATIENCE_SECONDS = 150.0
"""How long a pod may wait though a node would fit it: the leftover flush runs every 30 s and
requeues pods that have waited for 60 s, then the backoff is at most 10 s and its flush a second."""

TERMINAL = ("Succeeded", "Failed")

WouldTake = Callable[[Node, Sequence[Pod], Pod], bool]


class Ledger:
    """Accounts of the pods and nodes of an API server, updated by its store."""

    def __init__(self, c: Cluster, on_bind: Callable[[], None]) -> None:
        self._on_bind = on_bind
        self.problems: list[str] = []
        """Violations at some instant."""
        self.pods: dict[str, Pod] = {}
        """All pods that are not terminal, by UID."""
        self._asks: dict[str, Counter[str]] = {}
        self.used: dict[str, Counter[str]] = {}
        """Requests of the pods on each node; ``pods`` counts them."""
        self.binds = 0
        self._excused: set[str] = set()
        self._cluster = c
        self._nodes: dict[int, tuple[Node, Counter[str]]] = {}
        collection = c.server.store.collection(resources.PODS)
        for entry in collection.entries.values():
            self._put(_pod(entry))
        collection.watches[self] = None

    def offer(self, change: Change) -> None:
        """Called by the store with every change of a pod."""
        pod = _pod(change.entry)
        before = self.pods.get(pod.metadata.uid)
        self._drop(pod.metadata.uid)
        if change.type == DELETED:
            return
        if before is not None and before.spec.node_name not in ("", pod.spec.node_name):
            self.problems.append(
                f"{pod.metadata.key}: bound twice, to {before.spec.node_name} "
                f"and then to {pod.spec.node_name or 'no node'}"
            )
        self._put(pod)
        if pod.spec.node_name and before is not None and not before.spec.node_name:
            self.binds += 1
            self.problems += self._overfull(pod)
            self._on_bind()

    def excuse(self, key: str) -> None:
        """Do not count a pod's requests where its node is checked for overcommitment.

        For a bind that is performed after its sender gave it up: the room may have been given away.
        """
        self._excused.update(uid for uid, pod in self.pods.items() if pod.metadata.key == key)

    def close(self) -> None:
        """Called by the store when it shuts down."""

    def node(self, name: str) -> tuple[Node, Counter[str]] | None:
        """Return a node's current state, and its allocatable."""
        entry = self._cluster.server.store.collection(resources.NODES).entries.get(name)
        if entry is None:
            return None
        found = self._nodes.get(entry.version)
        if found is None:
            node = decode_node(Raw(entry.raw))
            found = node, Counter({"pods": 0, **amounts(node.status.allocatable)})
            self._nodes[entry.version] = found
        return found

    def nodes(self) -> list[Node]:
        names = list(self._cluster.server.store.collection(resources.NODES).entries)
        return [found[0] for name in names if (found := self.node(name)) is not None]

    def asks(self, uid: str) -> Counter[str]:
        """Return the requests of a pod."""
        return self._asks[uid]

    def pods_on(self, name: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.spec.node_name == name]

    def has_room(self, name: str, uid: str) -> bool:
        """Whether a pod's requests are free on a node; nothing else is checked."""
        found, used = self.node(name), self.used.get(name, Counter[str]())
        return found is not None and all(
            used[resource] + wanted <= found[1][resource]
            for resource, wanted in self._asks[uid].items()
        )

    def _overfull(self, pod: Pod) -> Iterator[str]:
        name = pod.spec.node_name
        found = self.node(name)
        if found is None:
            return
        allocatable, wanted = found[1], self._asks[pod.metadata.uid]
        counted = Counter(self.used[name])
        for one in self._excused & self.pods.keys():
            if self.pods[one].spec.node_name == name:
                counted.subtract(self._asks[one])
        for resource, used in counted.items():
            # A node that was overcommitted before may still take a pod that requests none of it.
            if wanted[resource] and used > allocatable[resource]:
                yield (
                    f"{pod.metadata.key}: bound to {name}, which then had {used} of "
                    f"{allocatable[resource]} {resource} in use"
                )

    def _put(self, pod: Pod) -> None:
        if pod.status.phase in TERMINAL:
            return
        uid = pod.metadata.uid
        self.pods[uid] = pod
        asks = self._asks[uid] = Counter({**pod_requests_with_status(pod), "pods": 1})
        if pod.spec.node_name:
            self.used.setdefault(pod.spec.node_name, Counter()).update(asks)

    def _drop(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            asks = self._asks.pop(uid)
            if pod.spec.node_name:
                self.used[pod.spec.node_name].subtract(asks)


class Checkers:
    """Checks a cluster repeatedly; ``check`` raises ``AssertionError`` with all problems.

    ``would_take`` returns whether a node with these pods would accept another pod, apart from its
    requests. Without it pods that are left behind are not detected.
    """

    def __init__(
        self,
        c: Cluster,
        patience_seconds: float = PATIENCE_SECONDS,
        would_take: WouldTake | None = None,
    ) -> None:
        self.ledger = Ledger(c, self._look_at_left_behind)
        self._would_take = would_take
        self._cluster = c
        self._patience_seconds = patience_seconds
        self._since: dict[str, float] = {}
        self._left: dict[str, str] = {}
        """UIDs of the pods that were left behind at the last check, by problem."""

    def check(self) -> None:
        """Check invariants that always hold, and those that may be violated only briefly."""
        now = self._cluster.clock.now()
        found = [*self.wrong_books(), *self.unaccounted(), *self.left_behind()]
        self._since = {problem: self._since.get(problem, now) for problem in found}
        lasting = [
            f"{problem} (since {since:g})"
            for problem, since in self._since.items()
            if now - since > self._patience_seconds
        ]
        self._complain([*self.ledger.problems, *lasting])

    def check_books(self) -> None:
        """For a settled cluster without faults: nothing may differ even for a moment."""
        self._complain([*self.ledger.problems, *self.wrong_books(), *self.unaccounted()])

    def _complain(self, problems: list[str]) -> None:
        if problems:
            at = f"at {self._cluster.clock.now():g} s:"
            raise AssertionError("\n".join([at, *problems]))

    def wrong_books(self) -> Iterator[str]:
        """Yield differences between the API server's pods and the scheduler's cache."""
        cache = self._cluster.scheduler.cache
        held = {waiting.pod.uid for waiting in self._cluster.scheduler.waiting}
        # PreBind waits until the volume controller has bound a claim.
        held |= {
            pod.uid
            for pod in cache.pods()
            if pod.template.claim_names and cache.is_assumed(pod.uid)
        }
        expected = {
            uid: pod.spec.node_name for uid, pod in self.ledger.pods.items() if pod.spec.node_name
        }
        known = {pod.uid: pod for pod in cache.pods()}
        for uid in expected.keys() | known.keys():
            node_name = known[uid].node_name if uid in known else "no node"
            if uid in expected and node_name != expected[uid]:
                yield f"{uid}: is on {expected[uid]}, the cache says {node_name}"
            elif uid not in expected and uid not in held:
                yield f"{uid}: is on no node, the cache says {node_name}"
        nodes = self.ledger.nodes()
        offered = {name for node in nodes for name in amounts(node.status.allocatable)}
        for node in nodes:
            name = node.metadata.name
            info = cache.get_node(name)
            if info is None:
                yield f"{name}: the cache does not know the node"
                continue
            used = Counter(self.ledger.used.get(name, Counter()))
            for uid in held & info.pods.keys() & self.ledger.pods.keys():
                used.update(self.ledger.asks(uid))
            used.pop("pods", None)
            for resource, amount in used.items():
                # What no node offers is not counted: a pod that requests it fits nowhere.
                if resource in offered and info.requested_of(resource) != amount:
                    counted = info.requested_of(resource)
                    yield f"{name}: {amount} {resource} in use, the cache says {counted}"

    def unaccounted(self) -> Iterator[str]:
        """Yield pending pods that the queue lost, and queued pods that do not exist."""
        scheduler = self._cluster.scheduler
        for uid, pod in self._pending():
            is_queued = scheduler.queue.place_of(uid) is not Place.ABSENT
            if not is_queued and not scheduler.cache.is_assumed(uid):
                yield f"{pod.metadata.key}: is pending and in no queue"
        for place, queued_pods in scheduler.queue.pending_pods().items():
            for queued in queued_pods:
                present = self.ledger.pods.get(queued.uid)
                if present is None or present.spec.node_name:
                    yield f"{queued.key}: is {place.value} but not pending"
        for waiting in scheduler.waiting:
            if waiting.pod.uid not in self.ledger.pods:
                yield f"{waiting.pod.key}: waits for permission but does not exist"

    def left_behind(self) -> Iterator[str]:
        """Yield pods that wait although a node would accept them."""
        self._left = {
            f"{pod.metadata.key}: waits although a node would take it": pod.metadata.uid
            for pod in self._accepted(self._pending())
        }
        yield from self._left

    def _look_at_left_behind(self) -> None:
        """A pod was bound: those for which no room is left now have not been waiting in vain."""
        pods = self.ledger.pods
        waiting = [(uid, pods[uid]) for uid in self._left.values() if uid in pods]
        accepted = {pod.metadata.uid for pod in self._accepted(waiting)}
        for problem, uid in self._left.items():
            if uid not in accepted:
                self._since.pop(problem, None)

    def _accepted(self, pending: Iterable[tuple[str, Pod]]) -> Iterator[Pod]:
        """Yield those of some pods that a node would accept."""
        if self._would_take is None:
            return
        nodes = self.ledger.nodes()
        # Pods of one template share the result.
        answers: dict[bytes, bool] = {}
        for uid, pod in pending:
            if pod.spec.scheduling_gates or self._cluster.scheduler.cache.is_assumed(uid):
                continue
            template = encode((pod.metadata.namespace, pod.metadata.labels, pod.spec))
            if template not in answers:
                answers[template] = any(self._takes(node, uid, pod) for node in nodes)
            if answers[template]:
                yield pod

    def _takes(self, node: Node, uid: str, pod: Pod) -> bool:
        name = node.metadata.name
        return (
            self._would_take is not None
            and self.ledger.has_room(name, uid)
            and self._would_take(node, self.ledger.pods_on(name), pod)
        )

    def _pending(self) -> Iterator[tuple[str, Pod]]:
        profiles = self._cluster.scheduler.profiles
        for uid, pod in self.ledger.pods.items():
            is_ours = pod.spec.scheduler_name in profiles
            if is_ours and not pod.spec.node_name and not pod.metadata.deletion_timestamp:
                yield uid, pod


def _pod(entry: Entry) -> Pod:
    return decode_pod(Raw(entry.raw))
