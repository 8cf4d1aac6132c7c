"""Effect of a hostile tenant's pods on the scheduler and on other pods, on a real API server.

    python -m lab.beside --nodes 5000
    python -m lab.beside --nodes 5000 --memory

Attacks are the bulky pods of ``lab.bulky`` and the tenants of ``lab.hostile``. For each attack:
the longest response time of ``/livez`` (nothing else in the process responds either while the event
loop is busy) and the time from creation to binding of ordinary pods that are created at a steady
pace: without the attack, with its pods assigned to another scheduler (they load the API server, and
are decoded by ours all the same), and with its pods assigned to this one.

With ``--memory`` all attacks run at once; resident memory is printed before, at its peak, and one
minute after the attackers' pods are deleted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bench.process_usage import usage
from bench.workloads import node, pod
from ksched.testing.builders import Json
from lab.assets import Assets
from lab.bulky import MOST, bulky_pod
from lab.control_plane import ADMIN, HOST, ControlPlane, free_ports
from lab.hostile import ATTACKS

PODS = "/api/v1/namespaces/default/pods"
ATTACKED_NODE = "node-00000"
SETTLE_SECONDS = 60.0
ORDINARY = "ordinary"
"""A label of the pods that are measured."""
PATIENCE_SECONDS = 120.0
PING_SECONDS = 0.01
RBAC = Path(__file__).parents[1] / "config" / "rbac.yaml"


class Outcome(NamedTuple):
    """Seconds; of the ordinary pods, from creation to binding."""

    longest_stall: float
    latencies: list[float]

    def quantile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


class Wire:
    """One connection to the API server."""

    def __init__(self, plane: ControlPlane) -> None:
        port = int(plane.url.rpartition(":")[2])
        self._connection = http.client.HTTPSConnection(
            HOST, port, timeout=PATIENCE_SECONDS, context=plane.ssl_context()
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


class BoundPods(threading.Thread):
    """Watches pods and notes when each was bound."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(plane)
        self.at: dict[str, float] = {}

    def run(self) -> None:
        # Not the bulky ones: reading them would keep this process from measuring.
        stream = self._wire.send("GET", f"{PODS}?watch=1&labelSelector={ORDINARY}")
        for line in stream:
            event = json.loads(line)
            name = event["object"]["metadata"]["name"]
            if event["object"].get("spec", {}).get("nodeName"):
                self.at.setdefault(name, time.monotonic())


class Pinger(threading.Thread):
    """Requests ``/livez`` in a loop and records the longest response time."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._ended = threading.Event()
        self.longest = 0.0

    def run(self) -> None:
        wire = http.client.HTTPConnection(HOST, self._port, timeout=PATIENCE_SECONDS)
        while not self._ended.wait(PING_SECONDS):
            began = time.monotonic()
            try:
                wire.request("GET", "/livez")
                wire.getresponse().read()
            except (OSError, http.client.HTTPException):
                wire.close()
            self.longest = max(self.longest, time.monotonic() - began)

    def end(self) -> None:
        self._ended.set()
        self.join()


def create_nodes(plane: ControlPlane, count: int) -> None:
    def some(numbers: Sequence[int]) -> None:
        wire = Wire(plane)
        for number in numbers:
            wire.request("POST", "/api/v1/nodes", node(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(some, [range(part, count, 4) for part in range(4)]))


def measure(
    plane: ControlPlane, port: int, name: str, pods: int, per_second: float, bulky: Sequence[bytes]
) -> Outcome:
    """Create ordinary pods, and bulky ones spread evenly among them."""
    wire, bulk_wire, bound, pinger = Wire(plane), Wire(plane), BoundPods(plane), Pinger(port)
    bound.start()
    pinger.start()
    created: dict[str, float] = {}
    places = {int((number + 0.5) * pods / len(bulky)): one for number, one in enumerate(bulky)}
    for number in range(pods):
        if number in places:
            bulk_wire.request("POST", PODS, places[number])
        body = pod(number, "basic")
        body["metadata"]["name"] = f"{name}-{number}"
        body["metadata"].setdefault("labels", {})[ORDINARY] = "yes"
        created[f"{name}-{number}"] = time.monotonic()
        wire.request("POST", PODS, body)
        time.sleep(1 / per_second)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not created.keys() <= bound.at.keys() and time.monotonic() < deadline:
        time.sleep(0.02)
    pinger.end()
    late = time.monotonic()
    return Outcome(
        pinger.longest, [bound.at.get(one, late) - since for one, since in created.items()]
    )


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


def compare(
    plane: ControlPlane, port: int, attack: str, options: argparse.Namespace
) -> list[Outcome]:
    """The same load three times: without the attack, with it elsewhere, with it."""

    def load(name: str, pods: list[bytes]) -> Outcome:
        return measure(plane, port, name, options.pods, options.per_second, pods)

    quiet = load("quiet", [])
    elsewhere = load("elsewhere", attack_pods(attack, options.bulky, "another-scheduler"))
    clear(plane)
    if attack == "host ports":
        Wire(plane).request("POST", PODS, crowd())
    beside = load("beside", attack_pods(attack, options.bulky, "default-scheduler"))
    clear(plane)
    return [quiet, elsewhere, beside]


def line(attack: str, outcomes: Sequence[Outcome]) -> str:
    columns = [
        f"{1000 * one.longest_stall:6.0f} {1000 * one.quantile(0.5):5.0f} "
        f"{1000 * one.quantile(0.99):6.0f}"
        for one in outcomes
    ]
    quiet, elsewhere, beside = (one.quantile(0.99) for one in outcomes)
    return f"{attack:40} {' | '.join(columns)} | {beside / quiet:5.2f} {beside / elsewhere:5.2f}"


def latencies(plane: ControlPlane, port: int, options: argparse.Namespace) -> None:
    print("longest stall, p50 and p99 in ms:")
    print("without | pods of another scheduler | pods of this one | ratios of p99", flush=True)
    for attack in options.attacks:
        try:
            print(line(attack, compare(plane, port, attack, options)), flush=True)
        except RuntimeError as refused:
            clear(plane)
            print(f"{attack:40} {refused}", flush=True)


def memory(plane: ControlPlane, port: int, pid: int, options: argparse.Namespace) -> None:
    """All attacks at once, then none."""

    def resident_mb() -> float:
        return usage(pid).rss_bytes / 2**20

    measure(plane, port, "before", options.pods, options.per_second, ())
    before = resident_mb()
    pods = [
        one for attack in options.attacks for one in attack_pods(attack, 1, "default-scheduler")
    ]
    admitted = [one for one in pods if _admitted(plane, one)]
    outcome = measure(plane, port, "during", options.pods, options.per_second, ())
    peak = resident_mb()
    clear(plane)
    time.sleep(SETTLE_SECONDS)
    after = resident_mb()
    print(f"{len(admitted)} of {len(pods)} pods admitted; longest stall ", end="")
    print(f"{1000 * outcome.longest_stall:.0f} ms, p99 {1000 * outcome.quantile(0.99):.0f} ms")
    print(f"resident MB: {before:.1f} before, {peak:.1f} with all attacks, ", end="")
    print(f"{after:.1f} after {SETTLE_SECONDS:.0f} s ({after / before:.2f} of before)", flush=True)


def _admitted(plane: ControlPlane, manifest: bytes) -> bool:
    answer = Wire(plane).send("POST", PODS, manifest)
    answer.read()
    return answer.status < 400


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.beside", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=300, help="ordinary pods of each run")
    parser.add_argument("--per-second", type=float, default=25)
    parser.add_argument("--bulky", type=int, default=3, help="bulky pods of each run")
    parser.add_argument("--program", type=Path, help="another ksched to run")
    parser.add_argument("--memory", action="store_true", help="memory, not latency")
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
            measure(plane, port, "first", 20, options.per_second, ())
            if options.memory:
                memory(plane, port, scheduler.pid, options)
            else:
                latencies(plane, port, options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
