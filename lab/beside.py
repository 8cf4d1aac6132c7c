"""What one bulky pod does to a scheduler on a real API server, and to the pods beside it.

    python -m lab.beside --nodes 5000

For each kind of bulky pod: the longest answer of ``/livez`` (nothing else in the process answers
either while the event loop is busy) and the time from creation to binding of ordinary pods that are
created at a steady pace: without bulky pods, with bulky pods of another scheduler (which keep the
API server busy, and are decoded by ours all the same), and with bulky pods of this one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.workloads import node, pod
from lab.assets import Assets
from lab.bulky import bulky_pod
from lab.child_process import ChildProcess
from lab.control_plane import ADMIN, HOST, ControlPlane, free_ports

KINDS = ("nodeSelector keys", "extended resources", "pod anti-affinity terms", "host ports")
PODS = "/api/v1/namespaces/default/pods"
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
    """Asks for ``/livez`` again and again and notes the longest answer."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._ended = threading.Event()
        self.longest = 0.0

    def run(self) -> None:
        context = ssl._create_unverified_context()
        wire = http.client.HTTPSConnection(
            HOST, self._port, timeout=PATIENCE_SECONDS, context=context
        )
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


def bulky_objects(kind: str, count: int, scheduler_name: str) -> list[bytes]:
    """Pods as an API server takes them, each with a name of its own."""
    found = []
    for number in range(count):
        body = bulky_pod(kind, name=f"{scheduler_name}-{number}").to_dict()
        body["spec"]["schedulerName"] = scheduler_name
        del body["metadata"]["uid"]
        # Another template each time: nothing is known from the one before.
        body["metadata"]["labels"] = {"number": str(number)}
        found.append(json.dumps(body).encode())
    return found


def clear(plane: ControlPlane) -> None:
    wire = Wire(plane)
    wire.request("DELETE", f"{PODS}?gracePeriodSeconds=0")


@contextmanager
def scheduler(plane: ControlPlane, port: int, program: Path | None) -> Iterator[ChildProcess]:
    process = plane.ksched(flags=(f"--secure-port={port}",), program=program)
    with process:
        yield process


def compare(
    plane: ControlPlane, kind: str, pods: int, per_second: float, count: int, program: Path | None
) -> list[Outcome]:
    """The same run three times, by a scheduler of its own."""
    (port,) = free_ports(1)
    with scheduler(plane, port, program):
        # The first pods wait for the start; they are not counted.
        measure(plane, port, "first", 20, per_second, ())
        quiet = measure(plane, port, "quiet", pods, per_second, ())
        foreign = bulky_objects(kind, count, "another-scheduler")
        elsewhere = measure(plane, port, "elsewhere", pods, per_second, foreign)
        if kind == "host ports":
            crowd = bulky_pod(kind, name="crowd").to_dict()
            del crowd["metadata"]["uid"]
            for one in crowd["spec"]["containers"][0]["ports"]:
                one["hostPort"] += 20_000
            crowd["spec"]["nodeName"] = "node-00000"
            Wire(plane).request("POST", PODS, crowd)
        bulky = bulky_objects(kind, count, "default-scheduler")
        beside = measure(plane, port, "beside", pods, per_second, bulky)
        clear(plane)
    return [quiet, elsewhere, beside]


def line(kind: str, outcomes: Sequence[Outcome]) -> str:
    def told(one: Outcome) -> str:
        return (
            f"{1000 * one.longest_stall:8.0f} {1000 * one.quantile(0.5):6.0f} "
            f"{1000 * one.quantile(0.99):7.0f}"
        )

    return f"{kind:24} {' | '.join(map(told, outcomes))}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.beside", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=300, help="ordinary pods of each run")
    parser.add_argument("--per-second", type=float, default=25)
    parser.add_argument("--bulky", type=int, default=3, help="bulky pods of each run")
    parser.add_argument("--program", type=Path, help="another ksched to run")
    parser.add_argument("kinds", nargs="*", default=KINDS)
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane.running(Path(folder), Assets.find()) as plane,
    ):
        plane.kubectl("apply", "-f", str(RBAC))
        create_nodes(plane, options.nodes)
        print(f"{options.nodes} nodes; longest stall, p50 and p99 in ms:")
        print("without bulky pods | with those of another scheduler | with its own")
        for kind in options.kinds:
            outcomes = compare(
                plane, kind, options.pods, options.per_second, options.bulky, options.program
            )
            print(line(kind, outcomes), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
