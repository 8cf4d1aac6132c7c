"""One extender: an external service that takes part in the decisions (KEP-1819).

Requests and the meaning of responses; ``ksched.extenders.http_client`` sends them. An extender
without a response, or with an invalid one, raises ``ExtenderError``. The consequences are decided
by ``ksched.extenders.chain``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from ksched.api.objects import Container, PodSpec
from ksched.api.whole_objects import WholeNode, WholePod, with_node_name
from ksched.cache.node_info import NodeInfo
from ksched.cache.pod_info import PodInfo
from ksched.cache.snapshot import Snapshot
from ksched.configuration.extenders import Extender
from ksched.errors import ExtenderError
from ksched.extenders.wire import (
    decode_binding_result,
    decode_filter_result,
    decode_host_priorities,
    decode_preemption_result,
    encode_args,
    encode_binding,
    encode_meta_preemption,
    encode_preemption,
)
from ksched.framework.interface import MAX_NODE_SCORE
from ksched.framework.victims import Victims
from ksched.redaction import redact_text

T = TypeVar("T")

EXTENDER = "Extender"
"""The plugin name that stands for all extenders in rejections and failures."""

MAX_EXTENDER_PRIORITY = 10
MAX_TOTAL = 1 << 53
"""Scores beyond are invalid, and their sum could overflow."""

MAX_TEXT = 1000


class ExtenderClient(Protocol):
    """Sends requests to one extender."""

    name: str
    """The extender's address, without secrets."""

    async def send(self, verb: str, body: bytes) -> bytes:
        """Send a request and return the response; raises ``ExtenderError``."""
        ...

    async def order(self, verb: str, body: bytes) -> bytes:
        """The same for a request that changes the cluster: only for a leader."""
        ...

    async def aclose(self) -> None: ...


class Filtered(Struct, frozen=True):
    """The nodes that filter left, and its messages about others."""

    node_names: frozenset[str]
    failed: Mapping[str, str]
    """Message by node; evicting other pods may help."""
    unresolvable: Mapping[str, str]
    """Message by node; evicting other pods would not help."""


class HttpExtender:
    """An extender with its configured verbs.

    kube-scheduler: HTTPExtender.
    """

    def __init__(self, config: Extender, client: ExtenderClient) -> None:
        self._config = config
        self.client = client
        self._managed = frozenset(resource.name for resource in config.managed_resources)
        self.name = client.name
        self.is_ignorable = config.ignorable
        self.is_node_cache_capable = config.node_cache_capable
        self.is_filter = bool(config.filter_verb)
        self.is_prioritizer = bool(config.prioritize_verb)
        self.is_binder = bool(config.bind_verb)
        self.supports_preemption = bool(config.preempt_verb)

    def is_interested(self, spec: PodSpec) -> bool:
        """Whether a pod requests any resource that this extender manages."""
        if not self._managed:
            return True
        return self._manages(spec.containers) or self._manages(spec.init_containers)

    def _manages(self, containers: Iterable[Container]) -> bool:
        """kube-scheduler: hasManagedResources."""
        return any(
            not self._managed.isdisjoint(names)
            for container in containers
            for names in (container.resources.requests, container.resources.limits)
        )

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Filtered:
        """Request which of these nodes may run the pod."""
        verb = self._config.filter_verb
        answer = await self.client.send(verb, self._args(pod, nodes))
        result = self._decode(decode_filter_result, verb, answer)
        if result.error:
            raise self._error(verb, result.error)
        names = result.nodes
        if self.is_node_cache_capable and result.node_names is not None:
            names = result.node_names
        passed = frozenset(names or ())
        if strangers := passed.difference(node.name for node in nodes):
            raise ExtenderError(
                f'extender "{self.name}" claims a filtered node "{min(strangers)}" '
                "which is not found in the input node list"
            )
        failed, unresolvable = result.failed_nodes, result.failed_and_unresolvable_nodes
        return Filtered(passed, _shortened(failed), _shortened(unresolvable))

    async def prioritize(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> dict[str, int]:
        """Request scores, and return them weighted, on the scale of the scheduler's own."""
        verb = self._config.prioritize_verb
        answer = await self.client.send(verb, self._args(pod, nodes))
        scores: dict[str, int] = {}
        for name, score in self._decode(decode_host_priorities, verb, answer):
            weighted = score * self._config.weight * (MAX_NODE_SCORE // MAX_EXTENDER_PRIORITY)
            scores[name] = scores.get(name, 0) + weighted
            if abs(scores[name]) > MAX_TOTAL:
                wanted = f"wanted 0 to {MAX_EXTENDER_PRIORITY}"
                raise self._error(verb, f'score of node "{name}": got {score}, {wanted}')
        return scores

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Bind a pod by the extender."""
        verb = self._config.bind_verb
        order = encode_binding(pod.name, pod.namespace, pod.uid, node_name)
        answer = await self.client.order(verb, order)
        if problem := self._decode(decode_binding_result, verb, answer):
            raise self._error(verb, problem)

    async def process_preemption(
        self, pod: PodInfo, victims: Mapping[str, Victims], snapshot: Snapshot
    ) -> dict[str, Victims]:
        """Filter these preemptions; the response may change victims.

        kube-scheduler: ProcessPreemption, convertToVictims, convertPodUIDToPod.
        """
        verb = self._config.preempt_verb
        answer = await self.client.send(verb, self._preemption_args(pod, victims))
        result = self._decode(decode_preemption_result, verb, answer)
        chosen: dict[str, Victims] = {}
        for node_name, meta in result.items():
            node = snapshot.get(node_name)
            if node is None:
                raise self._error(verb, f'node "{node_name}" is not known')
            missing = next((uid for uid in meta.uids if uid not in node.pods), None)
            if missing is not None:
                raise ExtenderError(
                    f'extender "{self.name}" claims to preempt pod (UID: {missing}) on node '
                    f'"{node_name}", but the pod is not found on that node'
                )
            pods = [node.pods[uid] for uid in meta.uids]
            chosen[node_name] = Victims(pods, meta.num_pdb_violations)
        return chosen

    def _args(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> bytes:
        if self.is_node_cache_capable:
            return encode_args(whole_pod(pod), None, [node.name for node in nodes])
        return encode_args(whole_pod(pod), [whole_node(node) for node in nodes], None)

    def _preemption_args(self, pod: PodInfo, victims: Mapping[str, Victims]) -> bytes:
        if self.is_node_cache_capable:
            uids = {
                node_name: ([victim.uid for victim in one.pods], one.num_pdb_violations)
                for node_name, one in victims.items()
            }
            return encode_meta_preemption(whole_pod(pod), uids)
        pods = {
            node_name: ([whole_pod(victim) for victim in one.pods], one.num_pdb_violations)
            for node_name, one in victims.items()
        }
        return encode_preemption(whole_pod(pod), pods)

    def _decode(self, decode: Callable[[bytes], T], verb: str, answer: bytes) -> T:
        try:
            return decode(answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            start = answer[:60].decode(errors="replace")
            text = f"answer not understood: {problem}, got {start!r}"
            raise self._error(verb, text) from problem

    def _error(self, verb: str, problem: str) -> ExtenderError:
        # A verb may contain a query.
        return ExtenderError(f'extender "{self.name}": {redact_text(verb)}: {shorten(problem)}')


def shorten(text: str) -> str:
    """Truncate untrusted text to a length that fits a pod's status."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def _shortened(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: shorten(text) for name, text in texts.items()}


def whole_pod(pod: PodInfo) -> bytes:
    """Return a pod's complete JSON; one that is assumed is already on its node."""
    if not isinstance(pod.pod, WholePod):
        raise ExtenderError(f"pod {pod.key}: its complete object was not stored")
    return with_node_name(pod.pod)


def whole_node(node: NodeInfo) -> bytes:
    """Return a node's complete JSON, as in the snapshot."""
    if not isinstance(node.node, WholeNode):
        raise ExtenderError(f"node {node.name}: its complete object was not stored")
    return node.node.whole
