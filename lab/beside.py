"""Effect of a hostile tenant's pods on the scheduler and on other pods, on a real API server.

    python -m lab.beside --nodes 5000
    python -m lab.beside --nodes 5000 --memory

Attacks are the bulky pods of ``lab.bulky`` and the tenants of ``lab.hostile``. For each attack:
the longest response time of ``/livez`` (nothing else in the process responds either while the event
loop is busy), the most CPU time that the event loop's thread used during one such request (the
other processes of the control plane share the cores, the loop also waits for them), and the time
from creation to binding of ordinary pods that are created at a steady pace, without the attack and
with it.

An attack also loads the API server, which shares the cores. So every other pod is one of the
control group: this program binds it at once when a watch reports it, to the same node each time. No
scheduler can be faster; what these pods lose by the attack, no scheduler can avoid.

With ``--memory`` resident memory is printed before each attack, during it, and one minute after its
pods are deleted; at the end the same for all attacks at once. ``--at-once 2`` is that alone, twice:

    python -m lab.beside --nodes 5000 --memory --at-once 2
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from bench.process_usage import main_thread_seconds, usage
from bench.workloads import node, pod
from ksched.testing.builders import Json
from lab.assets import Assets
from lab.bulky import MOST, bulky_pod
from lab.control_plane import ADMIN, HOST, ControlPlane, free_ports
from lab.hostile import ATTACKS

PODS = "/api/v1/namespaces/default/pods"
ATTACKED_NODE = "node-00000"
SETTLE_SECONDS = 60.0
DELETED_SECONDS = 3.0
"""API server and scheduler are still busy with pods that were just deleted."""
MEASURED, ORDINARY, CONTROL = "measured", "ordinary", "control"
"""A label of the pods that are measured, and its values."""
CONTROL_NODE = "node-00001"
PATIENCE_SECONDS = 120.0
PING_SECONDS = 0.01
RBAC = Path(__file__).parents[1] / "config" / "rbac.yaml"


class Outcome(NamedTuple):
    """Seconds; of the pods, from creation to binding."""

    longest_stall: float
    busiest_stall: float
    ordinary: list[float]
    control: list[float]


def quantile(latencies: Sequence[float], share: float) -> float:
    ordered = sorted(latencies)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


class Wire:
    """One connection to the API server."""

    def __init__(self, plane: ControlPlane, patience: float | None = PATIENCE_SECONDS) -> None:
        port = int(plane.url.rpartition(":")[2])
        self._connection = http.client.HTTPSConnection(
            HOST, port, timeout=patience, context=plane.ssl_context()
        )

    def request(self, method: str, path: str, body: object = None) -> None:
        answer = self.send(method, path, body)
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")

    def send(self, method: str, path: str, body: object = None) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {ADMIN.token}", "Content-Type": "application/json"}
        payload = body if body is None or isinstance(body, bytes) else json.dumps(body)
        self._connection.request(method, path, payload, headers)
        return self._connection.getresponse()


def watched_pods(plane: ControlPlane, selector: str) -> Iterator[Json]:
    """Events of a watch, opened again whenever the API server ends it."""
    while True:
        try:
            for line in Wire(plane, None).send("GET", f"{PODS}?watch=1&labelSelector={selector}"):
                yield json.loads(line)
        except (OSError, http.client.HTTPException):
            time.sleep(PING_SECONDS)


class BoundPods(threading.Thread):
    """Watches pods and records when each was bound."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(daemon=True)
        self._plane = plane
        self.at: dict[str, float] = {}

    def run(self) -> None:
        # Not the bulky ones: reading them would keep this process from measuring.
        for event in watched_pods(self._plane, MEASURED):
            pod = event["object"]
            if pod.get("spec", {}).get("nodeName"):
                self.at.setdefault(pod["metadata"]["name"], time.monotonic())


class ControlScheduler(threading.Thread):
    """Binds the pods of the control group without looking at anything."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(daemon=True)
        self._plane = plane

    def run(self) -> None:
        wire = Wire(self._plane)
        for event in watched_pods(self._plane, f"{MEASURED}={CONTROL}"):
            pod = event["object"]
            if event["type"] == "ADDED" and not pod["spec"].get("nodeName"):
                try:
                    self._bind(wire, pod["metadata"]["name"])
                except (OSError, http.client.HTTPException):
                    # The API server ended the connection.
                    wire = Wire(self._plane)
                    self._bind(wire, pod["metadata"]["name"])

    def _bind(self, wire: Wire, name: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": CONTROL_NODE},
        }
        wire.request("POST", f"{PODS}/{name}/binding", binding)


class Pinger:
    """Requests ``/livez`` in a loop; records the longest response time and the most CPU time.

    In a process of its own: while it waits for its turn in this one, the daemon goes on working.
    """

    def __init__(self, port: int, pid: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._control, far = context.Pipe()
        self._process = context.Process(target=_ping, args=(port, pid, far), daemon=True)
        self._process.start()
        self._control.recv()

    def end(self) -> tuple[float, float]:
        """Return the longest response time and the most CPU time of one request, in seconds."""
        self._control.send(None)
        longest, busiest = self._control.recv()
        self._process.join()
        return longest, busiest


def _ping(port: int, pid: int, control: Connection) -> None:
    wire = http.client.HTTPConnection(HOST, port, timeout=PATIENCE_SECONDS)
    longest = busiest = 0.0
    control.send("ready")
    while not control.poll(PING_SECONDS):
        began, used = time.monotonic(), main_thread_seconds(pid)
        try:
            wire.request("GET", "/livez")
            wire.getresponse().read()
        except (OSError, http.client.HTTPException):
            wire.close()
        longest = max(longest, time.monotonic() - began)
        busiest = max(busiest, main_thread_seconds(pid) - used)
    control.send((longest, busiest))


def create_nodes(plane: ControlPlane, count: int) -> None:
    def some(numbers: Sequence[int]) -> None:
        wire = Wire(plane)
        for number in numbers:
            wire.request("POST", "/api/v1/nodes", node(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(some, [range(part, count, 4) for part in range(4)]))


class Meter:
    """Creates pods at a steady pace and measures how long each takes to be bound."""

    def __init__(self, plane: ControlPlane, port: int, pid: int, per_second: float) -> None:
        self.plane = plane
        self._port, self._pid, self._per_second = port, pid, per_second
        self._bound = BoundPods(plane)
        self._bound.start()
        ControlScheduler(plane).start()
        self._runs = 0

    def measure(self, pods: int, bulky: Sequence[bytes] = ()) -> Outcome:
        """Create pods of both groups, and bulky ones spread evenly among them."""
        wire, bulk_wire = Wire(self.plane), Wire(self.plane)
        pinger = Pinger(self._port, self._pid)
        self._runs += 1
        created: dict[str, dict[str, float]] = {ORDINARY: {}, CONTROL: {}}
        places = {int((number + 0.5) * pods / len(bulky)): one for number, one in enumerate(bulky)}
        for number in range(pods):
            if number in places:
                bulk_wire.request("POST", PODS, places[number])
            group = CONTROL if number % 2 else ORDINARY
            name = f"{group}-{self._runs}-{number}"
            body = measured_pod(number, name, group)
            created[group][name] = time.monotonic()
            wire.request("POST", PODS, body)
            time.sleep(1 / self._per_second)
        self._wait_for(created[ORDINARY].keys() | created[CONTROL].keys())
        longest, busiest = pinger.end()
        late = time.monotonic()
        waits = {
            group: [self._bound.at.get(name, late) - began for name, began in pods_of.items()]
            for group, pods_of in created.items()
        }
        return Outcome(longest, busiest, waits[ORDINARY], waits[CONTROL])

    def _wait_for(self, names: Set[str]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not names <= self._bound.at.keys() and time.monotonic() < deadline:
            time.sleep(0.02)


def measured_pod(number: int, name: str, group: str) -> Json:
    body = pod(number, "basic")
    body["metadata"]["name"] = name
    body["metadata"].setdefault("labels", {})[MEASURED] = group
    if group == CONTROL:
        body["spec"]["schedulerName"] = CONTROL
    return body


def attack_pods(attack: str, count: int, scheduler_name: str) -> list[bytes]:
    """The pods of one attack as an API server takes them, each with a name of its own."""
    if attack in ATTACKS:
        prefix = f"{scheduler_name}-{attack.replace(' ', '-')}"
        manifests = ATTACKS[attack](prefix, ATTACKED_NODE)
    else:
        manifests = [_bulky_manifest(attack, scheduler_name, number) for number in range(count)]
    for manifest in manifests:
        manifest["spec"]["schedulerName"] = scheduler_name
    return [json.dumps(manifest).encode() for manifest in manifests]


def _bulky_manifest(kind: str, scheduler_name: str, number: int) -> Json:
    name = f"{scheduler_name}-{kind.replace(' ', '-')}-{number}".lower()
    manifest = bulky_pod(kind, name=name).to_dict()
    del manifest["metadata"]["uid"]
    # A template of its own each time: nothing is cached from the pod before.
    manifest["metadata"].setdefault("labels", {})["number"] = str(number)
    return manifest


def crowd() -> bytes:
    """A running pod with host ports on the attacked node, for the bulky pods of that kind."""
    manifest = _bulky_manifest("host ports", "crowd", 0)
    for port in manifest["spec"]["containers"][0]["ports"]:
        port["hostPort"] += 20_000
    manifest["spec"]["nodeName"] = ATTACKED_NODE
    return json.dumps(manifest).encode()


def clear(plane: ControlPlane) -> None:
    wire = Wire(plane)
    wire.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
    time.sleep(DELETED_SECONDS)


def measured_beside(meter: Meter, attack: str, options: argparse.Namespace) -> Outcome:
    """The load of a run, with the attack in its middle."""
    if attack == "host ports":
        Wire(meter.plane).request("POST", PODS, crowd())
    pods = attack_pods(attack, options.bulky, "default-scheduler")
    try:
        return meter.measure(options.pods, pods)
    finally:
        clear(meter.plane)


def measured_without(meter: Meter, options: argparse.Namespace) -> Outcome:
    outcome = meter.measure(options.pods)
    clear(meter.plane)
    return outcome


def line(attack: str, outcomes: Sequence[Outcome]) -> str:
    def ms(seconds: float) -> str:
        return f"{1000 * seconds:5.0f}"

    columns = [
        " ".join(
            (
                ms(one.longest_stall),
                ms(one.busiest_stall),
                ms(quantile(one.ordinary, 0.5)),
                ms(quantile(one.ordinary, 0.99)),
                ms(quantile(one.control, 0.99)),
            )
        )
        for one in outcomes
    ]
    without, beside = (quantile(one.ordinary, 0.99) for one in outcomes)
    unavoidable, control = (quantile(one.control, 0.99) for one in outcomes)
    ratios = f"{beside / without:5.2f} {control / unavoidable:5.2f} {beside / control:5.2f}"
    return f"{attack:40} {' | '.join(columns)} | {ratios}"


def latencies(meter: Meter, options: argparse.Namespace) -> None:
    print("longest stall, its most CPU time, p50 and p99, and p99 of the control group, in ms:")
    print(
        "without the attack | with it | p99 with / without, the same of the control group, ", end=""
    )
    print("p99 / that of the control group with the attack", flush=True)
    for number, attack in enumerate(options.attacks):
        if number % options.without_every == 0:
            without = measured_without(meter, options)
        try:
            beside = measured_beside(meter, attack, options)
        except RuntimeError as refused:
            print(f"{attack:40} {refused}", flush=True)
        else:
            print(line(attack, [without, beside]), flush=True)


def memory(meter: Meter, pid: int, options: argparse.Namespace) -> None:
    """Each attack by itself, one after the other in the same process, then all at once.

    With ``--at-once`` only the latter, so often.
    """

    def resident_mb() -> float:
        return usage(pid).rss_bytes / 2**20

    def remaining(title: str, attacks: Sequence[str]) -> None:
        before = resident_mb()
        pods = [one for attack in attacks for one in attack_pods(attack, 1, "default-scheduler")]
        admitted = [one for one in pods if _admitted(meter.plane, one)]
        meter.measure(options.pods)
        during = resident_mb()
        clear(meter.plane)
        time.sleep(SETTLE_SECONDS)
        after = resident_mb()
        print(
            f"{title:40} {len(admitted):3} of {len(pods):3} pods | {before:6.1f} {during:6.1f} ",
            end="",
        )
        print(f"{after:6.1f} | {after / before:4.2f} {after / start:4.2f}", flush=True)

    meter.measure(options.pods)
    clear(meter.plane)
    time.sleep(SETTLE_SECONDS)
    start = resident_mb()
    print("resident MB before, during, and a minute after | after / before, after / at the start")
    for attack in () if options.at_once else options.attacks:
        remaining(attack, [attack])
    for _ in range(max(options.at_once, 1)):
        remaining("all at once", options.attacks)


def _admitted(plane: ControlPlane, manifest: bytes) -> bool:
    answer = Wire(plane).send("POST", PODS, manifest)
    answer.read()
    return answer.status < 400


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.beside", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=400, help="pods of each run, both groups")
    parser.add_argument("--per-second", type=float, default=30)
    parser.add_argument("--bulky", type=int, default=2, help="bulky pods of each run")
    parser.add_argument(
        "--without-every",
        type=int,
        default=1,
        metavar="N",
        help="measure without an attack before every N of them",
    )
    parser.add_argument("--program", type=Path, help="another ksched to run")
    parser.add_argument("--memory", action="store_true", help="memory, not latency")
    parser.add_argument(
        "--at-once",
        type=int,
        default=0,
        metavar="TIMES",
        help="with --memory: no attack by itself, and so many times all at once",
    )
    parser.add_argument("attacks", nargs="*", default=(*MOST, *ATTACKS))
    options = parser.parse_args(arguments)
    (port,) = free_ports(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane.running(Path(folder), Assets.find()) as plane,
    ):
        plane.kubectl("apply", "-f", str(RBAC))
        create_nodes(plane, options.nodes)
        print(f"{options.nodes} nodes; ", end="")
        # Another program is an older one: it serves plain HTTP and does not have the flag.
        flags = [f"--secure-port={port}", *([] if options.program else ["--insecure-loopback"])]
        with plane.ksched(flags=flags, program=options.program) as scheduler:
            # The first pods wait for the start; they are not counted.
            meter = Meter(plane, port, scheduler.pid, options.per_second)
            meter.measure(40)
            if options.memory:
                memory(meter, scheduler.pid, options)
            else:
                latencies(meter, options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
