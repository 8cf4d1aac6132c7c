"""Scenarios of the election, command by command; see ``scripts/*.txt``.

Candidates look at the lock at exact retry periods (no jitter), so the seconds are exact.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ksched.api.resources import CONFIG_MAPS, ENDPOINTS, LEASES, ApiResource
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.apiserver.in_process import InProcessTransport
from ksched.apiserver.status_errors import GroupResource, StatusError, conflict, forbidden
from ksched.client.rest import ApiClient
from ksched.configuration.model import LeaderElection
from ksched.election import Callbacks, Elector, make_lock
from ksched.election.locks import ANNOTATION
from ksched.errors import LeaseLost, NotFound
from ksched.testing.virtual_time import VirtualClock, VirtualLoop
from lab.scripts import Command, run_script

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))
NAMESPACE, NAME = "kube-system", "kube-scheduler"
WHAT = GroupResource("coordination.k8s.io", "leases")
FAULTS = {
    "conflict": Fault(answer=conflict(WHAT, NAME)),
    "forbidden": Fault(answer=forbidden(WHAT, NAME, "not allowed")),
    "unavailable": Fault(answer=StatusError(503, "ServiceUnavailable", "etcd has no leader")),
    "hang": Fault(hang=True),
    "lose": Fault(lose_response=True),
}
OBJECTS: dict[str, ApiResource] = {
    "leases": LEASES,
    "endpoints": ENDPOINTS,
    "configmaps": CONFIG_MAPS,
}


class NoJitter(random.Random):
    def random(self) -> float:
        return 0.0


class Clock(VirtualClock):
    """A clock whose wall time can be set, as an administrator or NTP would."""

    def __init__(self) -> None:
        self.offset = 0.0

    def wall(self) -> float:
        return super().wall() + self.offset


class Candidate:
    """One replica, its own connection and its own wall clock."""

    def __init__(self, script: ElectionScript, name: str, options: dict[str, str]) -> None:
        self.name, self._script = name, script
        self.clock, self.faults = Clock(), Faults()
        # Events are named after the time at which they happen.
        self.clock.offset = len(script.candidates) * 1e-6
        config = LeaderElection(
            lease_duration_seconds=float(options.get("lease", 15)),
            renew_deadline_seconds=float(options.get("renew", 10)),
            retry_period_seconds=float(options.get("retry", 2)),
            resource_lock=options.get("lock", "leases"),
        )
        transport = InProcessTransport(script.server, name, self.faults)
        client = ApiClient(transport, self.clock, rng=NoJitter())
        lock = make_lock(config, client, self.clock, name, "default-scheduler")
        self.elector = Elector(
            lock,
            config,
            self.clock,
            rng=NoJitter(),
            callbacks=Callbacks(
                started_leading=lambda: self.tell("leads"),
                stopped_leading=lambda: self.tell("has stopped"),
                new_leader=lambda leader: self.tell(f"sees {leader} lead"),
                slow_path=lambda: self.tell("takes the slow path"),
            ),
        )
        for text in filter(None, options.get("fault", "").split(",")):
            verb, kind, *always = text.split(":")
            rule = Rule(FAULTS[kind], verb=verb, times=None if always else 1)
            self.faults.rules.append(rule)
        self.ends = asyncio.Event()
        self.fails = asyncio.Event()

    def tell(self, text: str) -> None:
        self._script.log.append(f"{self._script.now:7.3f}  {self.name} {text}")

    async def run(self) -> None:
        try:
            await self.elector.run(self.work)
        except LeaseLost as lost:
            self.tell(f"lost the lease: {lost.reason}")
        except ExceptionGroup as group:
            self.tell(f"failed: {group.exceptions[0]!r}")
        else:
            self.tell("ended")

    async def work(self) -> None:
        failing = asyncio.create_task(self.fails.wait())
        ending = asyncio.create_task(self.ends.wait())
        try:
            await asyncio.wait((failing, ending), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.tell("is cancelled")
            raise
        finally:
            failing.cancel()
            ending.cancel()
        if self.fails.is_set():
            raise RuntimeError


class ElectionScript:
    """Interprets the commands; every one prints what happened since the last."""

    def __init__(self) -> None:
        clock = VirtualClock()
        self.server = ApiServer(clock)
        self.admin = ApiClient(InProcessTransport(self.server, "admin"), clock)
        self.candidates: dict[str, Candidate] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.log: list[str] = []
        self._seen_requests: Counter[str] = Counter()

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def __call__(self, command: Command) -> str:
        output = getattr(self, f"do_{command.name}")(*command.args, **command.options)
        if asyncio.iscoroutine(output):
            output = await output
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await loop.idle()
        lines, self.log = self.log, []
        return "\n".join([*lines, *([output] if output else [])])

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    # -- replicas ---------------------------------------------------------------------------------

    def do_start(self, *names: str, **options: str) -> None:
        for name in names:
            self.candidates[name] = Candidate(self, name, options)
            self.do_again(name)

    def do_again(self, name: str) -> None:
        self.tasks[name] = asyncio.create_task(self.candidates[name].run())

    def do_end(self, name: str) -> None:
        self.candidates[name].ends.set()

    def do_fail(self, name: str) -> None:
        self.candidates[name].fails.set()

    async def do_cancel(self, name: str) -> None:
        task = self.tasks.pop(name)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def do_crash(self, name: str) -> None:
        """The process is gone: it can say nothing more."""
        self.do_cut(name)
        self.candidates[name].tell = lambda text: None  # type: ignore[method-assign]
        self.tasks.pop(name).cancel()

    # -- the world --------------------------------------------------------------------------------

    async def do_advance(self, seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    def do_block(self, seconds: str) -> None:
        """Something keeps the event loop; or the process is stopped and goes on later."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.keep_busy(float(seconds))

    def do_wall(self, name: str, seconds: str) -> None:
        self.candidates[name].clock.offset += float(seconds)

    def do_fault(self, name: str, verb: str, kind: str, times: str = "1", skip: str = "0") -> None:
        rule = Rule(FAULTS[kind], verb=verb, times=int(times), skip=int(skip))
        self.candidates[name].faults.rules.append(rule)

    def do_cut(self, name: str) -> None:
        """Nothing of this replica reaches the server, and no answer comes."""
        rules = self.candidates[name].faults.rules
        rules.append(Rule(Fault(hang=True), times=None))

    def do_refuse(self, name: str) -> None:
        self.candidates[name].faults.rules.append(Rule(FAULTS["unavailable"], times=None))

    def do_heal(self, name: str) -> None:
        self.candidates[name].faults.rules.clear()

    async def do_write(self, holder: str, duration: str = "15", lock: str = "leases") -> None:
        """Another program takes the lock, whoever holds it."""
        obj = await self.read(lock)
        spec = {"holderIdentity": holder, "leaseDurationSeconds": int(duration)}
        if lock == "leases":
            obj["spec"] = {**obj.get("spec", {}), **spec}
        else:
            text = msgspec.json.encode(spec).decode()
            obj["metadata"]["annotations"] = {ANNOTATION: text}
        await self.put(lock, obj)

    async def do_object(self, lock: str = "leases") -> None:
        """The object exists and says nothing of a leader."""
        await self.put(lock, await self.read(lock))

    async def do_garble(self, lock: str) -> None:
        obj = await self.read(lock)
        obj["metadata"]["annotations"] = {ANNOTATION: "{"}
        await self.put(lock, obj)

    async def do_label(self, lock: str = "leases", **labels: str) -> None:
        """Somebody changes the object, but not who holds it."""
        obj = await self.read(lock)
        obj["metadata"]["labels"] = labels
        await self.put(lock, obj)

    async def do_delete(self, lock: str = "leases") -> None:
        await self.admin.request("DELETE", OBJECTS[lock].path(NAMESPACE, NAME))

    async def read(self, lock: str) -> dict[str, Any]:
        try:
            body = await self.admin.get(OBJECTS[lock], NAMESPACE, NAME)
        except NotFound:
            meta = {"name": NAME, "namespace": NAMESPACE}
            resource = OBJECTS[lock]
            return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
        obj: dict[str, Any] = msgspec.json.decode(body)
        return obj

    async def put(self, lock: str, obj: dict[str, Any]) -> None:
        body = msgspec.json.encode(obj)
        if "uid" in obj["metadata"]:
            await self.admin.update(OBJECTS[lock], NAMESPACE, NAME, body)
        else:
            await self.admin.create(OBJECTS[lock], NAMESPACE, body)

    # -- output -----------------------------------------------------------------------------------

    async def do_record(self, lock: str = "leases") -> str:
        obj = await self.read(lock)
        labels = obj["metadata"].get("labels")
        text = (obj["metadata"].get("annotations") or {}).get(ANNOTATION)
        record = obj.get("spec") if lock == "leases" else msgspec.json.decode(text or "{}")
        lines = [f"{key}: {value}" for key, value in (record or {}).items()]
        return "\n".join([*lines, *([f"labels: {labels}"] if labels else [])]) or "none"

    def do_requests(self, name: str = "") -> str:
        """What the server was asked since the last look, watches and events left out."""
        lines = list(self._requests(name))
        self._seen_requests[name] = len(self.server.requests)
        return "\n".join(lines) or "none"

    def _requests(self, name: str) -> Iterator[str]:
        for audit in list(self.server.requests)[self._seen_requests[name] :]:
            if audit.verb != "watch" and audit.resource != "events" and audit.user == name:
                yield f"{audit.at:7.3f}  {audit.verb} {audit.resource} {audit.code}"

    async def do_events(self) -> str:
        path = f"/api/v1/namespaces/{NAMESPACE}/events"
        items = msgspec.json.decode(await self.admin.request("GET", path))["items"]
        return "\n".join(
            f"{event['type']} {event['reason']} {event['involvedObject']['kind']} "
            f"{event['source']['component']}: {event['message']}"
            for event in sorted(items, key=lambda event: event["metadata"]["name"])
        )

    def do_health(self, name: str) -> str:
        elector = self.candidates[name].elector
        return f"{elector.problem() or 'ok'}; may act for {elector.remaining():.3f} s"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
async def test_script_prints_what_it_says(path: Path, rewrite: bool) -> None:
    script = ElectionScript()
    try:
        await run_script(path, script, rewrite=rewrite)
    finally:
        await script.close()
