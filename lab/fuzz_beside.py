"""Scheduling beside malformed HTTP requests and slow clients, on a real API server.

    python -m lab.fuzz_beside --requests 100000 --seconds 200

Ordinary pods are created at a steady pace, first alone, then while another process sends malformed
requests (those of ``lab.http_fuzz``) to the scheduler's port and holds connections that send a byte
a second or do not read their response. The scheduler and the API server share the cores: what the
control group of ``lab.beside`` loses meanwhile, no scheduler can avoid. That process would run on
another machine, so it has the lowest priority on this one.

The exit code is 1 if p99 from creation to binding grows by more than a fifth, and by more than a
fifth more than that of the control group.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from lab.assets import Assets
from lab.beside import RBAC, Meter, Outcome, clear, create_nodes, line, quantile
from lab.child_process import ChildProcess
from lab.control_plane import HOST, ControlPlane, free_ports
from lab.http_fuzz import checked, requests, send

MOST = 1.2
SLOW_SENDERS, SLOW_READERS = 20, 20
AT_A_TIME = 16
LOWEST_PRIORITY = 19


async def attack(port: int, seed: int, count: int, seconds: float) -> Counter[int]:
    """Send so many requests, evenly over a time, beside slow clients; return the statuses."""
    found: Counter[int] = Counter()
    clock = asyncio.get_running_loop()
    began, numbers, source = clock.time(), iter(range(count)), requests(seed)
    async with asyncio.TaskGroup() as tasks:
        slow = [tasks.create_task(_send_slowly(port)) for _ in range(SLOW_SENDERS)]
        slow += [tasks.create_task(_read_never(port)) for _ in range(SLOW_READERS)]
        async with asyncio.TaskGroup() as senders:
            for _ in range(AT_A_TIME):
                numbered = zip(numbers, source, strict=False)
                senders.create_task(_send_paced(port, numbered, began, seconds / count, found))
        for task in slow:
            task.cancel()
    return found


async def _send_paced(
    port: int,
    source: Iterator[tuple[int, bytes]],
    began: float,
    apart: float,
    found: Counter[int],
) -> None:
    clock = asyncio.get_running_loop()
    for number, request in source:
        await asyncio.sleep(max(began + number * apart - clock.time(), 0))
        found.update(checked(request, await send(port, request)) or [0])


async def _send_slowly(port: int) -> None:
    """A byte a second of a request that never ends; a closed connection is opened again."""
    while True:
        async with _connected(port) as writer:
            for byte in itertools.chain(b"GET /metrics HTTP/1.1\r\nX: ", itertools.repeat(120)):
                if writer.is_closing():
                    break
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(1)


async def _read_never(port: int) -> None:
    """Requests for the largest page, one after the other, and nothing of it is read."""
    while True:
        async with _connected(port) as writer:
            while not writer.is_closing():
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await writer.drain()
                await asyncio.sleep(5)


@asynccontextmanager
async def _connected(port: int) -> AsyncIterator[asyncio.StreamWriter]:
    """A connection until the other side ends it; then a second passes."""
    try:
        _, writer = await asyncio.open_connection(HOST, port, limit=1)
        try:
            yield writer
        finally:
            writer.transport.abort()
    except ConnectionError:
        pass
    await asyncio.sleep(1)


def verdict(without: Outcome, beside: Outcome) -> tuple[float, float, int]:
    """How much p99 grew, the same of the control group, and the exit code."""
    ours = quantile(beside.ordinary, 0.99) / quantile(without.ordinary, 0.99)
    control = quantile(beside.control, 0.99) / quantile(without.control, 0.99)
    return ours, control, int(ours > MOST and ours / control > MOST)


def measure(options: argparse.Namespace) -> int:
    (port,) = free_ports(1)
    pods = int(options.seconds * options.per_second)
    with (
        tempfile.TemporaryDirectory() as name,
        ControlPlane.running(Path(name), Assets.find()) as plane,
    ):
        plane.kubectl("apply", "-f", str(RBAC))
        create_nodes(plane, options.nodes)
        with plane.ksched(flags=[f"--secure-port={port}", "--insecure-loopback"]) as scheduler:
            meter = Meter(plane, port, scheduler.pid, options.per_second)
            # The first pods wait for the start; they are not counted.
            meter.measure(40)
            without = meter.measure(pods // 2)
            clear(plane)
            own = ("--attack", str(port), "--requests", str(options.requests))
            command = (sys.executable, "-m", "lab.fuzz_beside", *own)
            flags = (f"--seed={options.seed}", f"--seconds={options.seconds}")
            with ChildProcess("attack", (*command, *flags), Path(name) / "attack.log") as attacker:
                beside = meter.measure(pods)
                if attacker.wait(options.seconds) != 0:
                    raise attacker.failure(f"exit code {attacker.exit_code}")
                print(attacker.log().strip())
            scheduler.must_run(0)
    print("stall, its CPU, p50, p99, p99 of the control group, in ms: without | with")
    print(line(f"{options.requests} requests", [without, beside]))
    ours, control, code = verdict(without, beside)
    print(f"p99 with / without {ours:.2f}, of the control group {control:.2f}")
    return code


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.fuzz_beside",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=200.0, help="of the attack")
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--per-second", type=float, default=20.0, help="pods of both groups")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attack", type=int, metavar="PORT", help="only attack this port")
    options = parser.parse_args(arguments)
    if options.attack is None:
        return measure(options)
    os.nice(LOWEST_PRIORITY)
    found = uvloop.run(attack(options.attack, options.seed, options.requests, options.seconds))
    statuses = ", ".join(f"{code or 'none'}: {times}" for code, times in sorted(found.items()))
    print(f"{sum(found.values())} responses; {statuses}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
