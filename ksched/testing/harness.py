"""A whole cluster in one object: API server, scheduler and, optionally, kubelets.

    async with cluster(nodes=3) as c:
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()
        assert c.bound("web")

On a virtual loop (``ksched.testing.virtual_time``) nothing takes time except ``advance``; on any
other loop the same code runs in real time. Pods are named ``name`` or ``namespace/name``.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import msgspec

from ksched.api.objects import Node, Pod
from ksched.api.resources import NODES, PODS, ApiResource
from ksched.apiserver import served_resources as resources
from ksched.apiserver.api_server import ApiServer, Audit
from ksched.apiserver.claim_controller import ClaimController
from ksched.apiserver.device_driver import DeviceDriver
from ksched.apiserver.faults import Faults
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.kubelet import Kubelet
from ksched.apiserver.served_resources import JsonObject
from ksched.apiserver.volume_controller import VolumeController
from ksched.client.rest import ApiClient
from ksched.clock import Clock, LoopClock
from ksched.configuration import SchedulerConfiguration, load_config
from ksched.configuration.model import ClientConnection, Profile
from ksched.configuration.plugins import Plugin, PluginSet
from ksched.configuration.strict_model import API_VERSION
from ksched.framework.handle import PluginFactory
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.runtime.declaration_checks import DeclarationChecks
from ksched.queue.places import Place, Transition
from ksched.scheduling.reloading import Reload
from ksched.scheduling.scheduler import Scheduler
from ksched.testing.builders import Builder, make_node
from ksched.testing.virtual_time import VirtualClock, VirtualLoop
from ksched.transport import STRATEGIC_MERGE_PATCH

Anything = Builder[Any] | Pod | Node | Mapping[str, Any]
Plugins = Mapping[str, Any] | Sequence[Any]

_POLL_SECONDS = 0.005
_QUIET_POLLS = 10


class PodEvent(msgspec.Struct, frozen=True):
    """An event about a pod, as ``kubectl describe`` shows it."""

    type: str
    reason: str
    note: str
    count: int
    controller: str


class Cluster:
    """The result of ``cluster()``: the parts, and shortcuts for tests."""

    def __init__(
        self,
        server: ApiServer,
        scheduler: Scheduler,
        faults: Faults,
        clock: Clock,
        rng: random.Random,
        checks: DeclarationChecks | None = None,
        plugins: Iterable[str] = (),
    ) -> None:
        self._checks = checks or DeclarationChecks()
        self._plugins = tuple(plugins)
        self.server, self.scheduler, self.faults = server, scheduler, faults
        self.clock, self.rng = clock, rng
        self.client = ApiClient(InProcessTransport(server, "test"), clock, rng=rng)
        """A client other than the scheduler, without injected faults."""
        self._uids: dict[str, str] = {}

    @property
    def requests(self) -> deque[Audit]:
        """The requests to the API server with user and time, oldest first."""
        return self.server.requests

    # -- actions --------------------------------------------------------------------------------

    async def create(self, *objects: Anything) -> list[JsonObject]:
        """Create objects and return them as the server stored them; raises ``ApiError``."""
        return [await self._create(obj) for obj in objects]

    async def _create(self, obj: Anything) -> JsonObject:
        data = _as_dict(obj)
        resource, namespace, _ = self._address(data)
        body = msgspec.json.encode(data)
        created: JsonObject = msgspec.json.decode(
            await self.client.create(resource, namespace, body)
        )
        if resource == PODS:
            self._uids[_key(created)] = created["metadata"]["uid"]
        return created

    def _address(self, obj: Mapping[str, Any]) -> tuple[ApiResource, str, str]:
        """Return kind, namespace and name of an object; ``LookupError`` if not served."""
        version, kind = obj.get("apiVersion", "v1"), obj.get("kind", "Pod")
        for row in self.server.resources:
            if (row.group_version, row.kind) == (version, kind):
                resource = ApiResource(row.group, row.version, row.plural, row.kind, row.namespaced)
                metadata = obj.get("metadata", {})
                namespace = metadata.get("namespace", "default") if row.namespaced else ""
                return resource, namespace, metadata.get("name", "")
        raise LookupError(f"no {kind} of {version} is served, create its definition first")

    async def replace(self, obj: Anything) -> JsonObject:
        """Store another state of an object, whatever its version, and return it."""
        data = _as_dict(obj)
        resource, namespace, name = self._address(data)
        stored = msgspec.json.decode(await self.client.get(resource, namespace, name))
        version = stored["metadata"]["resourceVersion"]
        data["metadata"] = {**data["metadata"], "resourceVersion": version}
        path = resource.path(namespace, name)
        answer = await self.client.request("PUT", path, msgspec.json.encode(data))
        replaced: JsonObject = msgspec.json.decode(answer)
        return replaced

    async def remove(self, obj: Anything) -> None:
        """Delete an object of any kind."""
        resource, namespace, name = self._address(_as_dict(obj))
        await self.client.request("DELETE", resource.path(namespace, name))

    async def add_nodes(self, nodes: int | Iterable[Anything]) -> None:
        """Add nodes; a number means that many of 4 cores and 32 GiB, named n1, n2 and so on."""
        if isinstance(nodes, int):
            known = len(self.server.store.collection(resources.NODES).entries)
            nodes = [make_node(f"n{known + number + 1}") for number in range(nodes)]
        await self.create(*nodes)

    async def delete(self, pod: str, *, grace_seconds: int | None = None) -> None:
        """Delete a pod, with its own grace period unless another is given."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        path = PODS.path(*_split(pod))
        await self.client.request("DELETE", path, msgspec.json.encode(options))

    async def delete_object(self, obj: Anything) -> None:
        """Delete the object of the same kind, namespace and name, of whatever kind."""
        resource, namespace, name = self._address(_as_dict(obj))
        await self.client.request("DELETE", resource.path(namespace, name))

    async def delete_node(self, name: str) -> None:
        await self.client.request("DELETE", NODES.path("", name))

    async def patch(self, pod: str, patch: Mapping[str, Any], *, subresource: str = "") -> None:
        """Apply a strategic merge patch to a pod."""
        body = msgspec.json.encode(patch)
        await self.client.patch(PODS, *_split(pod), body, subresource=subresource)

    async def patch_node(
        self, name: str, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> None:
        """Apply a strategic merge patch to a node."""
        path = NODES.path("", name, subresource)
        body = msgspec.json.encode(patch)
        await self.client.request("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)

    async def bind(self, pod: str, node_name: str) -> None:
        """Bind a pod as another scheduler would."""
        namespace, name = _split(pod)
        await self.client.bind(namespace, name, "", node_name)

    async def reload(self, config: SchedulerConfiguration | Mapping[str, Any] | str) -> Reload:
        """Give the running scheduler another configuration, as ``cluster`` would be given it.

        Raises ``ConfigError`` if it is refused; then nothing has changed.
        """
        return await self.scheduler.reload(_configuration(config, self._plugins))

    async def settle(self) -> None:
        """Run until nothing more can happen without time passing.

        On a real loop: until nothing has changed for a twentieth of a second.
        """
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            await loop.idle()
        else:
            quiet, seen = 0, self._activity()
            while quiet < _QUIET_POLLS:
                await asyncio.sleep(_POLL_SECONDS)
                before, seen = seen, self._activity()
                quiet = quiet + 1 if seen == before else 0
        self.raise_false_declaration()

    def raise_false_declaration(self) -> None:
        """Raise ``FalseDeclaration`` if a plugin's declaration was found to be false."""
        if self._checks.found:
            found = self._checks.found[0]
            self._checks.found.clear()
            raise found

    async def advance(self, seconds: float) -> None:
        """Let time pass, and settle."""
        await self.clock.sleep(seconds)
        await self.settle()

    def _activity(self) -> tuple[object, ...]:
        """Return a value that changes whenever anything happens."""
        scheduler = self.scheduler
        return (
            self.server.store.version,
            len(self.server.requests) and self.server.requests[-1],
            scheduler.queue.statistics(),
            scheduler.cache.statistics(),
            len(scheduler.pod_status),
            len(scheduler.group_status),
        )

    @asynccontextmanager
    async def volume_controller(self, **seconds: float) -> AsyncIterator[None]:
        """Run a volume controller during the block; ``seconds`` as of ``VolumeController``."""
        transport = InProcessTransport(self.server, "volume-controller")
        async with beside(VolumeController(transport, self.clock, **seconds).run):
            yield

    @asynccontextmanager
    async def claim_controller(self) -> AsyncIterator[None]:
        """Run a controller of resource claims during the block: claims from templates."""
        transport = InProcessTransport(self.server, "claim-controller")
        async with beside(ClaimController(transport, self.clock).run):
            yield

    @asynccontextmanager
    async def device_driver(
        self, name: str, devices: Sequence[Mapping[str, Any]], **options: Any
    ) -> AsyncIterator[None]:
        """Run a driver during the block that publishes devices; see ``DeviceDriver``."""
        transport = InProcessTransport(self.server, f"driver-{name}")
        async with beside(DeviceDriver(transport, self.clock, name, devices, **options).run):
            yield

    # -- observations ---------------------------------------------------------------------------

    def pod(self, pod: str) -> JsonObject:
        """Return the pod as stored in the API server; ``KeyError`` if there is none."""
        return self.server.store.collection(resources.PODS).entries["/".join(_split(pod))].decode()

    def pod_names(self) -> list[str]:
        """Return all pods as ``namespace/name``, sorted."""
        return sorted(self.server.store.collection(resources.PODS).entries)

    def pods(self) -> list[JsonObject]:
        entries = self.server.store.collection(resources.PODS).entries
        return [entry.decode() for entry in list(entries.values())]

    def nodes(self) -> list[JsonObject]:
        entries = self.server.store.collection(resources.NODES).entries
        return [entry.decode() for entry in list(entries.values())]

    def exists(self, pod: str) -> bool:
        return "/".join(_split(pod)) in self.server.store.collection(resources.PODS).entries

    def bound(self, pod: str) -> str | None:
        """Return the node a pod is bound to."""
        node_name: str | None = self.pod(pod)["spec"].get("nodeName") or None
        return node_name

    def condition(self, pod: str, type: str = "PodScheduled") -> JsonObject | None:  # noqa: A002
        """Return a condition of a pod, by default the scheduler's."""
        conditions = self.pod(pod)["status"].get("conditions") or []
        return next((one for one in conditions if one["type"] == type), None)

    def message(self, pod: str) -> str:
        """Return why a pod is not scheduled: its PodScheduled condition's message, or ""."""
        condition = self.condition(pod) or {}
        text: str = condition.get("message", "")
        return text

    def events(self, pod: str) -> list[PodEvent]:
        """The events about a pod, oldest first."""
        namespace, name = _split(pod)
        found = []
        for entry in self.server.store.collection(resources.EVENTS).entries.values():
            event = entry.decode()
            about = event["involvedObject"]
            if (about.get("namespace"), about.get("name")) == (namespace, name):
                found.append(
                    (event.get("eventTime") or "", event["metadata"]["name"], _pod_event(event))
                )
        return [event for *_, event in sorted(found)]

    def uid(self, pod: str) -> str:
        """Return the UID of the pod last created under this name."""
        return self._uids["/".join(_split(pod))]

    def story(self, pod: str) -> list[Transition]:
        """Return a pod's transitions in the queue; also for a deleted pod."""
        return self.scheduler.queue.story(self.uid(pod))

    def queued(self, pod: str) -> QueuedPodInfo:
        """Return the queue's entry of a pending pod; ``KeyError`` if it is not pending."""
        queued = self.scheduler.queue.get(self.uid(pod))
        if queued is None:
            raise KeyError(pod)
        return queued

    def place(self, pod: str) -> Place:
        """Return a pod's place in the queue."""
        return self.scheduler.queue.place_of(self.uid(pod))


@asynccontextmanager
async def cluster(
    nodes: int | Iterable[Anything] = 0,
    *,
    config: SchedulerConfiguration | Mapping[str, Any] | str | None = None,
    plugins: Plugins = (),
    seed: int = 0,
    kubelet: bool = False,
    faults: Faults | None = None,
    start: bool = True,
    check_declarations: bool = True,
    **options: Any,
) -> AsyncIterator[Cluster]:
    """Run a scheduler on an embedded API server until the block ends.

    ``config`` is a configuration, or the content of a configuration file as text or mapping; the
    default rate limit is lifted, since a test should not wait for it. ``plugins`` are out-of-tree
    plugins, or factories of them, by name or with a ``name``; those that the configuration does
    not mention are enabled in every profile. ``faults`` are injected between the scheduler and the
    server. With ``start=False`` the scheduler is only built; the caller runs ``watch`` and
    ``schedule``. ``options`` go to the ``Scheduler``.

    Every attempt calls the columnar plugins again for cached rows; if a plugin's declaration is
    false, its attempt fails, and so does the next ``settle`` or ``advance``, or the end of the
    block, with ``FalseDeclaration``. ``check_declarations=False`` turns this off.
    """
    is_virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    clock: Clock = VirtualClock() if is_virtual else LoopClock()
    faults = Faults(seed=seed) if faults is None else faults
    server = ApiServer(clock, seed=seed)
    registry = _registry(plugins)
    checks = DeclarationChecks()
    if check_declarations:
        options.setdefault("make_pipeline", checks.make_pipeline)
    scheduler = Scheduler(
        InProcessTransport(server, "system:kube-scheduler", faults),
        _configuration(config, registry),
        registry=registry,
        clock=clock,
        seed=seed,
        **options,
    )
    async with AsyncExitStack() as stack:
        harness = Cluster(server, scheduler, faults, clock, random.Random(seed), checks, registry)
        await harness.add_nodes(nodes)
        if kubelet:
            kubelets = Kubelet(InProcessTransport(server, "kubelet"), clock)
            await stack.enter_async_context(beside(kubelets.run))
        if start:
            await stack.enter_async_context(scheduler)
        yield harness
    harness.raise_false_declaration()


@asynccontextmanager
async def beside(work: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run a task during the body; the body's exception propagates unchanged, not in a group."""
    problem: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        try:
            yield
        except Exception as raised:  # noqa: BLE001 - raised again below
            problem = raised
        tasks.cancel_scope.cancel()
    if problem is not None:
        raise problem


def _registry(plugins: Plugins) -> dict[str, PluginFactory]:
    if isinstance(plugins, Sequence):
        plugins = {plugin.name: plugin for plugin in plugins}
    return {
        name: plugin if callable(plugin) else lambda args, handle, it=plugin: it
        for name, plugin in plugins.items()
    }


def _configuration(
    config: SchedulerConfiguration | Mapping[str, Any] | str | None, names: Iterable[str]
) -> SchedulerConfiguration:
    if isinstance(config, Mapping):
        kind = {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration"}
        config = msgspec.json.encode({**kind, **config}).decode()
    if isinstance(config, str):
        config = load_config(config)
    config = config or SchedulerConfiguration()
    changes: dict[str, Any] = {
        "profiles": tuple(_enable(profile, names) for profile in config.profiles)
    }
    if config.client_connection == ClientConnection():
        changes["client_connection"] = ClientConnection(qps=-1.0)
    return config.model_copy(update=changes)


def _enable(profile: Profile, names: Iterable[str]) -> Profile:
    """Enable plugins that a profile does not mention."""
    mentioned = {
        plugin.name
        for _, point in profile.plugins.items()
        for plugin in (*point.enabled, *point.disabled)
    }
    more = tuple(Plugin(name=name) for name in names if name not in mentioned)
    multi_point = profile.plugins.multi_point
    enabled = PluginSet(enabled=(*multi_point.enabled, *more), disabled=multi_point.disabled)
    plugins = profile.plugins.model_copy(update={"multi_point": enabled})
    return profile.model_copy(update={"plugins": plugins})


def _as_dict(obj: Anything) -> JsonObject:
    if isinstance(obj, Builder):
        return obj.to_dict()
    if isinstance(obj, Pod | Node):
        kind = {"apiVersion": "v1", "kind": type(obj).__name__}
        return {**kind, **msgspec.to_builtins(obj)}
    return dict(obj)


def _split(pod: str) -> tuple[str, str]:
    namespace, _, name = pod.rpartition("/")
    return namespace or "default", name


def _key(obj: JsonObject) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _pod_event(event: JsonObject) -> PodEvent:
    series = event.get("series") or {}
    return PodEvent(
        event["type"],
        event["reason"],
        event.get("message", ""),
        series.get("count", 1),
        event.get("reportingComponent", ""),
    )
