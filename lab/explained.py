"""``ksched explain`` on a real API server whose pods a real kube-scheduler decides.

    python -m lab.explained --pods 200

Random pods that fit nowhere, on random clusters of up to six nodes. The explanation of each must be
kube-scheduler's condition word by word, with its node counts. Then every smallest change that is
offered is made through the API, for a pod like the pending one: kube-scheduler must place it. And
no smaller one may do: all smaller sets of the offered steps of that kind on all nodes, and of an
amount one unit less.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import combinations, count
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import uvloop

from ksched.api.decoding import decode_pod
from ksched.api.objects import Pod
from ksched.api.resources import (
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    SERVICES,
    ApiResource,
)
from ksched.client.connecting import connect
from ksched.client.reflector import Reflector
from ksched.client.rest import ApiClient
from ksched.client.retry import REPEATABLE
from ksched.clock import LoopClock
from ksched.configuration.model import SchedulerConfiguration
from ksched.errors import ApiError, Conflict, NotFound
from ksched.explain.cluster_copy import ClusterCopy
from ksched.explain.explaining import explain
from ksched.explain.explanation import Explanation
from ksched.explain.manifest import PRIORITY_CLASSES
from ksched.explain.read_only import ReadOnlyTransport
from ksched.explain.smallest_change import Found, applied, smallest_changes, steps_by_kind
from ksched.explain.steps import Case, Step
from ksched.testing.builders import Json
from ksched.transport import MERGE_PATCH
from lab.assets import Assets
from lab.control_plane import ControlPlane
from lab.parity.arena import ONE_BY_ONE, Pods
from lab.parity.manifests import GPU, PAGES, RandomManifests
from lab.parity.verdicts import Outcome, differences

RBAC: Final = Path(__file__).parents[1] / "config" / "rbac-read-only.yaml"
SEEN_SECONDS: Final = 0.25
"""After it, kube-scheduler has seen a change of the cluster."""
SEEN_ANYHOW_SECONDS: Final = 3.0
STILL_PENDING_SECONDS: Final = 0.3
MAX_SMALLER: Final = 40
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_INVALID: Final = 422
_RESOURCES: Final = {
    "Namespace": NAMESPACES,
    "Service": SERVICES,
    "ReplicaSet": REPLICA_SETS,
    "Node": NODES,
    "PriorityClass": PRIORITY_CLASSES,
}


class Findings:
    """What was compared, and what was not as it should be."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    def problem(self, where: str, what: str) -> None:
        self.problems.append(f"{where}: {what}")
        print(f"{where}: {what}", flush=True)

    def __str__(self) -> str:
        counted = ", ".join(f"{number} {what}" for what, number in self.counts.items())
        return f"{counted}; {len(self.problems)} problems"


class Bench:
    """A real cluster with kube-scheduler, and the requests of this comparison."""

    def __init__(self, admin: ApiClient, reader: ApiClient, pods: Pods) -> None:
        self.admin, self.reader, self.pods = admin, reader, pods
        self._names = count()
        self._manifests: dict[str, Json] = {}
        """What was sent for each pod; what the server has added to it may not be sent again."""

    @classmethod
    @asynccontextmanager
    async def running(cls, plane: ControlPlane) -> AsyncIterator[Bench]:
        clock, pods = LoopClock(), Pods()
        async with (
            connect(str(plane.kubeconfig("admin"))) as admin,
            connect(str(plane.kubeconfig("reader"))) as reader,
        ):
            client = ApiClient(admin, clock)
            reflector = Reflector(client, PODS, decode_pod, pods, clock)
            with plane.kube_scheduler(flags=[ONE_BY_ONE]):
                async with asyncio.TaskGroup() as tasks:
                    watching = tasks.create_task(reflector.run())
                    await reflector.wait_synced()
                    yield cls(client, ApiClient(ReadOnlyTransport(reader), clock), pods)
                    watching.cancel()

    async def copy(self) -> ClusterCopy:
        copy = ClusterCopy(self.reader, SchedulerConfiguration(), LoopClock())
        await copy.read()
        return copy

    async def create(self, resource: ApiResource, manifest: Json) -> Json:
        namespace = manifest["metadata"].get("namespace", "")
        body = msgspec.json.encode(manifest)
        if resource == PODS:
            self._manifests[f"{namespace}/{manifest['metadata']['name']}"] = manifest
        try:
            created: Json = msgspec.json.decode(await self.admin.create(resource, namespace, body))
        except Conflict:
            return manifest
        return created

    async def delete(self, resource: ApiResource, namespace: str, name: str) -> None:
        try:
            path = f"{resource.path(namespace, name)}?gracePeriodSeconds=0"
            await self.admin.request("DELETE", path, retry=REPEATABLE)
        except NotFound:
            return
        if resource == PODS:
            key = f"{namespace}/{name}"
            await self.pods.until(f"{key} is gone", lambda pods: key not in pods or None)

    async def decided(self, manifest: Json, *, is_to_fit: bool = False) -> tuple[Json, Pod]:
        """Create a pod, under a new name, and return it when it has a node or a rejection.

        If it ``is_to_fit``, a rejection is not the last word: a change may be seen late.
        """
        name = f"{manifest['metadata']['name']}-{next(self._names)}"
        made = {**manifest, "metadata": {**manifest["metadata"], "name": name}}
        created = await self.create(PODS, made)
        key = f"{created['metadata']['namespace']}/{name}"
        pod = await self.pods.until(f"{key} is decided", partial(_decided, key=key))
        if is_to_fit and not pod.spec.node_name:
            try:
                async with asyncio.timeout(6):
                    await self.pods.until("it fits", partial(_placed, key=key))
            except TimeoutError:
                pass
            pod = self.pods.by_key[key]
        return created, pod

    # -- changes --------------------------------------------------------------------------------

    async def would_place(self, original: Json, case: Case, before: Case, *, fits: bool) -> str:
        """Make a change, have a pod like the original decided, undo it; the node or nothing."""
        async with self._changed(case, before):
            manifest = _manifest(original, before.pod, case.pod)
            try:
                created, pod = await self.decided(manifest, is_to_fit=fits)
            except ApiError as refused:
                # Half a huge page, for instance: no change that could be made.
                if refused.code != _INVALID:
                    raise
                return ""
            if not fits and not pod.spec.node_name:
                await asyncio.sleep(STILL_PENDING_SECONDS)
                pod = self.pods.by_key[pod.metadata.key]
            await self._remove(created)
        return pod.spec.node_name

    @asynccontextmanager
    async def _changed(self, case: Case, before: Case) -> AsyncIterator[None]:
        name = case.node.metadata.name
        node = msgspec.json.decode(await self.admin.get(NODES, "", name))
        gone = [self._manifests[one.key] for one in case.evicted]
        if case.node is not before.node:
            await self._set_node(name, _node_parts(case))
        for one in gone:
            await self._remove(one)
        if gone or case.node is not before.node:
            await asyncio.sleep(SEEN_SECONDS)
        try:
            yield
        finally:
            if case.node is not before.node:
                await self._set_node(name, node)
            for one in gone:
                await self.create(PODS, one)
            if gone or case.node is not before.node:
                await asyncio.sleep(SEEN_SECONDS)

    async def _set_node(self, name: str, wanted: Json) -> None:
        spec, labels = wanted.get("spec", {}), wanted["metadata"].get("labels", {})
        now = msgspec.json.decode(await self.admin.get(NODES, "", name))
        absent = dict.fromkeys(now["metadata"].get("labels", {}).keys() - labels.keys())
        patch = {
            "metadata": {"labels": {**labels, **absent}},
            "spec": {
                "taints": spec.get("taints") or None,
                "unschedulable": spec.get("unschedulable") or None,
            },
        }
        allocatable = dict.fromkeys(now["status"].get("allocatable", {}))
        allocatable |= wanted["status"]["allocatable"]
        status = {"status": {"allocatable": allocatable, "capacity": allocatable}}
        for body, subresource in ((patch, ""), (status, "status")):
            await self.admin.patch(
                NODES,
                "",
                name,
                msgspec.json.encode(body),
                subresource=subresource,
                content_type=MERGE_PATCH,
            )

    async def _remove(self, pod: Json) -> None:
        await self.delete(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])


def _decided(pods: Mapping[str, Pod], key: str) -> Pod | None:
    pod = pods.get(key)
    if pod is None or pod.spec.node_name or _message(pod):
        return pod
    return None


def _placed(pods: Mapping[str, Pod], key: str) -> Pod | None:
    pod = pods[key]
    return pod if pod.spec.node_name else None


def _message(pod: Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message
    return ""


# -- objects as the API takes them --------------------------------------------------------------


def _manifest(original: Json, before: Pod, changed: Pod) -> Json:
    """The manifest of a pod with the steps that lead from one state of it to another.

    What the server has added to terms may not be sent to it.
    """
    spec = msgspec.json.decode(msgspec.json.encode(original["spec"]))
    tolerations = changed.spec.tolerations[len(before.spec.tolerations) :]
    spec["tolerations"] = [*spec.get("tolerations", ()), *msgspec.to_builtins(tolerations)]
    spec["nodeSelector"] = dict(changed.spec.node_selector)
    spec["topologySpreadConstraints"] = _remaining(
        spec.get("topologySpreadConstraints"),
        before.spec.topology_spread_constraints,
        changed.spec.topology_spread_constraints,
    )
    old, new = before.spec.affinity, changed.spec.affinity
    if old is not None and new is not None:
        if new.node_affinity is not None and new.node_affinity.required is None:
            spec["affinity"].get("nodeAffinity", {}).pop(_REQUIRED, None)
        for key, theirs, ours in (
            ("podAffinity", old.pod_affinity, new.pod_affinity),
            ("podAntiAffinity", old.pod_anti_affinity, new.pod_anti_affinity),
        ):
            if theirs is not None and ours is not None and theirs.required:
                rules = spec["affinity"][key]
                rules[_REQUIRED] = _remaining(rules[_REQUIRED], theirs.required, ours.required)
    for one, other in zip(spec["containers"], changed.spec.containers, strict=True):
        resources = one.setdefault("resources", {})
        resources["requests"] = requests = dict(other.resources.requests)
        for name in resources.get("limits", {}):
            if name in (GPU, PAGES):
                resources["limits"][name] = requests.get(name, 0)
        one["ports"] = [port for port in one.get("ports", ()) if _is_kept(port, other)]
    return {**original, "spec": spec}


def _remaining(
    manifests: list[Json] | None, before: Sequence[object], after: Sequence[object]
) -> list[Json]:
    pairs = zip(manifests or (), before, strict=True)
    return [manifest for manifest, known in pairs if known in after]


def _is_kept(port: Json, container: Any) -> bool:
    return not port.get("hostPort") or any(
        one.host_port == port["hostPort"] for one in container.ports
    )


def _node_parts(case: Case) -> Json:
    return {
        "metadata": {"labels": dict(case.node.metadata.labels)},
        "spec": msgspec.to_builtins(case.node.spec),
        "status": {"allocatable": dict(case.node.status.allocatable)},
    }


# -- smaller changes ----------------------------------------------------------------------------


def smaller(copy: ClusterCopy, pod: Pod, found: Sequence[Found], kind: str) -> Iterator[Case]:
    """All changes of a kind with fewer steps than the smallest, on all nodes, and with less."""
    own = [one for one in found if one.kind == kind and one.is_smallest]
    if not own:
        return
    least = min(len(one.steps) for one in own)
    for name in sorted(copy.cache.node_names()):
        info = copy.cache.get_node(name)
        assert info is not None
        assert info.node is not None
        steps = steps_by_kind(pod, info)[kind]
        for size in range(1, least):
            for chosen in combinations(steps, size):
                yield applied(Case(pod, info.node), chosen)
    (cheapest, *_) = own
    if len(cheapest.steps) == least == 1:
        less = _slightly_less(cheapest.steps[0])
        info = copy.cache.get_node(cheapest.node)
        if less is not None and info is not None and info.node is not None:
            yield less.apply(Case(pod, info.node))


def _slightly_less(step: Step) -> Step | None:
    """The step with an amount one unit less, if it has one."""
    make: Any = step.apply
    change = make.args[0] if isinstance(make, partial) and make.args else None
    if not isinstance(change, partial) or len(change.args) != 2:
        return None
    resource, amount = change.args
    if not isinstance(amount, int):
        return None
    return Step(step.text, partial(make.func, partial(change.func, resource, amount - 1)))


def _shown(before: Case, case: Case) -> str:
    """What of a case is changed."""
    if case.evicted:
        return f"evicts {', '.join(one.key for one in case.evicted)}"
    if case.node is not before.node:
        return f"{before.node} becomes {case.node}"
    return f"{before.pod.spec} becomes {case.pod.spec}"


# -- a seed -------------------------------------------------------------------------------------


class Seed:
    """One random cluster, and pods on it."""

    def __init__(self, bench: Bench, seed: int, findings: Findings) -> None:
        self._bench, self._seed, self._findings = bench, seed, findings
        self._random = Random(seed)
        self._source = RandomManifests(self._random)

    async def play(self, pods: int) -> None:
        names = [f"s{self._seed}n{number}" for number in range(self._random.randint(2, 6))]
        self._source.node_names = names
        made: list[tuple[ApiResource, Json]] = []
        try:
            for one in self._source.cluster(names):
                resource = _RESOURCES[one["kind"]]
                made.append((resource, await self._bench.create(resource, one)))
            for number in range(self._random.randint(len(names), 3 * len(names))):
                pod = self._source.running_pod(f"r{self._seed}x{number}", names)
                made.append((PODS, await self._bench.create(PODS, pod)))
            await asyncio.sleep(2 * SEEN_SECONDS)
            for number in range(pods):
                await self._one(number)
        finally:
            for resource, one in reversed(made):
                if resource not in (NAMESPACES, PRIORITY_CLASSES):
                    metadata = one["metadata"]
                    namespace = metadata.get("namespace", "")
                    await self._bench.delete(resource, namespace, metadata["name"])

    async def _one(self, number: int) -> None:
        original = self._source.pod(f"p{self._seed}x{number}")
        created, pod = await self._bench.decided(original)
        where, counts = f"seed {self._seed}, pod {number}", self._findings.counts
        try:
            if pod.spec.node_name:
                counts["placed"] += 1
                return
            counts["pending"] += 1
            copy = await self._bench.copy()
            explanation = await explain(copy, pod)
            self._compare(where, pod, explanation)
        finally:
            metadata = created["metadata"]
            await self._bench.delete(PODS, metadata["namespace"], metadata["name"])
        copy = await self._bench.copy()
        await self._try_changes(where, original, pod, copy)

    def _compare(self, where: str, pod: Pod, explanation: Explanation) -> None:
        theirs, ours = Outcome(message=_message(pod)), Outcome(message=explanation.message)
        if differences(theirs, ours):
            text = f"kube-scheduler: {theirs.message}\n  explain:        {ours.message}"
            self._findings.problem(where, text)

    async def _try_changes(self, where: str, original: Json, pod: Pod, copy: ClusterCopy) -> None:
        (profile,) = copy.profiles.values()
        names = sorted(copy.cache.node_names())
        found = await smallest_changes(copy, profile, pod, names)
        counts, bench = self._findings.counts, self._bench
        for one in found:
            before = self._before(copy, pod, one.node)
            counts["changes"] += 1
            if not await bench.would_place(original, one.case, before, fits=True):
                steps = ", ".join(step.text for step in one.steps)
                self._findings.problem(where, f"{one.kind} on {one.node} does not help: {steps}")
        for kind in dict.fromkeys(one.kind for one in found):
            cases = list(smaller(copy, pod, found, kind))
            self._random.shuffle(cases)
            for case in cases[:MAX_SMALLER]:
                counts["smaller changes"] += 1
                before = self._before(copy, pod, case.node.metadata.name)
                placed = await bench.would_place(original, case, before, fits=False)
                if placed:
                    # Perhaps the end of the change before was not seen yet.
                    await asyncio.sleep(SEEN_ANYHOW_SECONDS)
                    placed = await bench.would_place(original, case, before, fits=False)
                if placed:
                    text = f"a smaller change of kind {kind} helps, on {placed}"
                    self._findings.problem(where, f"{text}: {_shown(before, case)}")

    def _before(self, copy: ClusterCopy, pod: Pod, node: str) -> Case:
        info = copy.cache.get_node(node)
        assert info is not None
        assert info.node is not None
        return Case(pod, info.node)


async def run(plane: ControlPlane, pods: int, seeds: Iterator[int], per_seed: int = 12) -> Findings:
    """Play seeds until so many pods were pending."""
    findings = Findings()
    async with Bench.running(plane) as bench:
        while findings.counts["pending"] < pods:
            await Seed(bench, next(seeds), findings).play(per_seed)
            print(findings, flush=True)
    return findings


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.explained", description=__doc__)
    parser.add_argument("--pods", type=int, default=200, help="pending pods to explain")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane.running(Path(folder), Assets.find()) as plane,
    ):
        plane.kubectl("apply", "-f", str(RBAC))
        findings = uvloop.run(run(plane, options.pods, count(options.seed)))
    return 1 if findings.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
