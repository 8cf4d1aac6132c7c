"""python -m lab.http_fuzz: malformed HTTP requests from a seed against a running scheduler.

A scheduler runs as a process of its own beside an embedded API server. The run fails if a response
is no HTTP, shows a fault of the server, or is a 500; if the process ends or does not answer /livez
any more; and if its log has a traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvloop

from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.http_listener import listening, write_kubeconfig
from ksched.clock import LoopClock
from ksched.errors import KschedError
from lab.child_process import ChildProcess

HOST = "127.0.0.1"
QUIET_SECONDS = 0.1
"""An unfinished request is given up after so long without a byte."""
AT_A_TIME = 64
CHUNK = 5_000
START_SECONDS = 60.0

METHODS = (
    *[b"GET"] * 6,
    *(b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"PATCH", b"get", b""),
)
PATHS = (
    *(b"/", b"/healthz", b"/livez", b"/readyz", b"/readyz/ping", b"/metrics", b"/metrics/slis"),
    *(b"/metrics/resources", b"/configz", b"/flagz", b"/statusz", b"/debug/queue"),
    *(b"/debug/decisions", b"/debug/groups", b"/debug/groups/a/b", b"/debug/story/a/b"),
    *(b"/debug/pprof/", b"/debug/pprof/goroutine"),
)
WORDS = (
    *(b"%", b"%2f", b"%ff", b"%00", b"%C3%A4", b"//", b"/..", b"/.", b"?", b"&", b"=", b"#", b"*"),
    *(b"?limit=", b"?verbose", b"?exclude=", b"?pretty=", b"0", b"-1", b"1e9", b"9" * 400),
    *(b"\xff", b"\x00", b"\t", b" ", b"\r", b"\n", b"\r\n", b":", b";", b",", b"a" * 9000),
)
HEADERS = (
    *(b"Host", b"Accept", b"Authorization", b"Connection", b"Content-Length", b"User-Agent"),
    *(b"Transfer-Encoding", b"Content-Encoding", b"Expect", b"Upgrade", b"Cookie", b"Range"),
    *(b"If-None-Match", b"X-Forwarded-For", b"Content-Type", b"TE", b"Trailer"),
)
VALUES = (
    *(b"x", b"close", b"keep-alive", b"upgrade", b"chunked", b"gzip", b"identity", b"100-continue"),
    *(b"0", b"5", b"-1", b"99999999999999999999", b"Bearer x", b"Basic eA==", b"websocket", b"*/*"),
    *(b"text/plain;q=nan", b"application/json;g=config.k8s.io;v=v1beta1;as=Flagz", b";,=;", b""),
    *(b"application/openmetrics-text", b"application/yaml;as=Statusz", b"bytes=0-,0-,0-"),
)
VERSIONS = (b"HTTP/1.1", b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1.1.1", b"")

FAULT = re.compile(rb"Traceback|File \"|site-packages|\.py[\",:]")
STATUS = re.compile(rb"HTTP/\d\.\d (\d{3})(?!\d)")


class ServerAtFault(KschedError):
    """A response, the process or its log is not as it must be."""


def requests(seed: int) -> Iterator[bytes]:
    """Yield requests without end, the same for a seed."""
    rng = random.Random(seed)
    makers = (_formed, _formed, _mutated, _mutated, _cut, _pipelined, _with_body, _raw)
    while True:
        yield rng.choice(makers)(rng)


def _formed(rng: random.Random) -> bytes:
    path = rng.choice(PATHS)
    for _ in range(rng.choice((0, 0, 1, 3))):
        path += rng.choice(WORDS).strip(b" \t\r\n") + rng.choice((b"", b"x", b"1"))
    fields = [b"Host: localhost", b"Connection: close"]
    fields += [
        b"%s: %s" % (rng.choice(HEADERS), rng.choice(VALUES)) for _ in range(rng.randrange(4))
    ]
    version = rng.choice(VERSIONS) if rng.random() < 0.1 else b"HTTP/1.1"
    line = b"%s %s %s" % (rng.choice(METHODS), path, version)
    return b"\r\n".join([line, *fields, b"", b""])


def _mutated(rng: random.Random) -> bytes:
    data = bytearray(_formed(rng))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(3)
        if kind == 0:
            data[at:at] = rng.choice(WORDS)
        elif kind == 1:
            del data[at : at + rng.randrange(1, 8)]
        else:
            data[at : at + 1] = rng.randbytes(1)
    return bytes(data)


def _cut(rng: random.Random) -> bytes:
    data = _formed(rng)
    return data[: rng.randrange(len(data))]


def _pipelined(rng: random.Random) -> bytes:
    return b"".join(rng.choice((_formed, _mutated))(rng) for _ in range(rng.randrange(2, 6)))


def _with_body(rng: random.Random) -> bytes:
    head = _formed(rng).removesuffix(b"\r\n")
    body = rng.randbytes(rng.choice((0, 10, 1000, 70_000)))
    if rng.random() < 0.5:
        length = len(body) + rng.choice((0, 0, 5, -5))
        return head + b"Content-Length: %d\r\n\r\n" % length + body
    size = rng.choice((b"%x" % len(body), b"ZZ", b"ffffffffffffffff", b"-1", b""))
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\n" + body + b"\r\n0\r\n\r\n"


def _raw(rng: random.Random) -> bytes:
    parts = (*WORDS, *PATHS, *METHODS, *VERSIONS, *HEADERS, *VALUES)
    return b"".join(
        rng.choice(parts) if rng.random() < 0.8 else rng.randbytes(rng.randrange(20))
        for _ in range(rng.randrange(20))
    )


async def send(port: int, data: bytes) -> bytes:
    """Send bytes on a new connection, and return what comes back until it is closed or quiet."""
    answer = b""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except ConnectionError:
        return answer
    try:
        writer.write(data)
        while True:
            async with asyncio.timeout(QUIET_SECONDS):
                piece = await reader.read(1 << 16)
            if not piece:
                return answer
            answer += piece
    except (ConnectionError, TimeoutError):
        return answer
    finally:
        writer.transport.abort()


def checked(request: bytes, answer: bytes) -> list[int]:
    """Return the statuses of an answer; raises ``ServerAtFault``."""
    codes = [int(code) for code in STATUS.findall(answer)]
    is_http = not answer or bool(STATUS.match(answer))
    if not is_http or FAULT.search(answer) or any(code >= 500 and code != 505 for code in codes):
        raise ServerAtFault(f"request {request[:2000]!r}: answer {answer[:2000]!r}")
    return codes


async def attack(port: int, source: Iterator[bytes], count: int) -> Counter[int]:
    """Send ``count`` requests, several at a time; return how often each status came back.

    Raises ``ServerAtFault``; a request without a response counts as status 0.
    """
    found: Counter[int] = Counter()
    remaining = iter(range(count))

    async def client() -> None:
        for _ in remaining:
            request = next(source)
            found.update(checked(request, await send(port, request)) or [0])

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_A_TIME):
                tasks.create_task(client())
    except ExceptionGroup as problems:
        raise problems.exceptions[0] from None
    return found


async def is_alive(port: int, path: bytes = b"/livez") -> bool:
    """Whether a probe is answered, within a few tries: the machine may be busy."""
    for _ in range(50):
        request = b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path
        answer = await send(port, request)
        if answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"ok"):
            return True
        await asyncio.sleep(0.1)
    return False


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.http_fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    return parser.parse_args(arguments)


async def run(seed: int, count: int, folder: Path) -> Counter[int]:
    """Attack a scheduler of its own; raises ``ServerAtFault``."""
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
    kubeconfig, source = folder / "kubeconfig", requests(seed)
    found: Counter[int] = Counter()
    async with listening(ApiServer(LoopClock())) as url:
        write_kubeconfig(kubeconfig, url)
        flags = (f"--kubeconfig={kubeconfig}", "--insecure-loopback", f"--secure-port={port}")
        command = (sys.executable, "-m", "ksched", "run", *flags)
        with ChildProcess("ksched", command, folder / "ksched.log") as ksched:
            deadline = time.monotonic() + START_SECONDS
            while not await is_alive(port, b"/readyz"):
                if ksched.exit_code is not None or time.monotonic() > deadline:
                    raise ksched.failure("did not start")
            for sent in range(0, count, CHUNK):
                found += await attack(port, source, min(CHUNK, count - sent))
                if ksched.exit_code is not None or not await is_alive(port):
                    raise ServerAtFault(f"no answer to /livez; log: {ksched.log()[-2000:]}")
        if "Traceback" in ksched.log():
            raise ServerAtFault(f"traceback in the log: {ksched.log()[-5000:]}")
    return found


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = uvloop.run(run(options.seed, options.requests, Path(folder)))
        except KschedError as problem:
            print(f"seed {options.seed}: {problem}")
            return 1
    statuses = ", ".join(f"{code or 'none'}: {times}" for code, times in sorted(found.items()))
    seconds = time.monotonic() - began
    print(f"seed {options.seed}: {options.requests} requests, {seconds:.0f} s; {statuses}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
