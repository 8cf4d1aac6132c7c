"""Malformed requests at a pace, and what is said of a measurement."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from lab.beside import Outcome
from lab.fuzz_beside import SLOW_READERS, SLOW_SENDERS, attack, verdict

REQUESTS = 40


def outcome(ordinary: float, control: float) -> Outcome:
    return Outcome(0.0, 0.0, [ordinary], [control])


@pytest.mark.parametrize(
    ("ordinary", "control", "code"),
    [
        pytest.param(1.1, 1.0, 0, id="hardly more"),
        pytest.param(1.5, 1.0, 1, id="much more"),
        pytest.param(1.5, 1.4, 0, id="no more than without a scheduler"),
    ],
)
def test_verdict(ordinary: float, control: float, code: int) -> None:
    ours, theirs, found = verdict(outcome(1.0, 1.0), outcome(ordinary, control))

    assert (ours, theirs, found) == (ordinary, control, code)


def test_every_request_is_sent_beside_slow_clients() -> None:
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def run() -> int:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return sum((await attack(port, 1, REQUESTS, 0.2)).values())

    assert uvloop.run(run()) >= REQUESTS
    assert connections >= REQUESTS + SLOW_READERS + SLOW_SENDERS
