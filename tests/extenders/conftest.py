"""Extenders for tests: functions on virtual time, and a server that misbehaves on a real socket."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ksched.configuration.extenders import Extender
from ksched.errors import ExtenderError

Reply = Callable[[Any], Any]


class Extenders:
    """Extenders as functions, called in place of HTTP.

    ``replies`` has by urlPrefix and verb what to answer: a value, or a function (``async`` if it
    takes time) of the decoded question. An exception is raised as the client raises it.
    """

    def __init__(self) -> None:
        self.replies: dict[tuple[str, str], Any] = {}
        self.asked: list[tuple[str, str, Any]] = []
        """urlPrefix, verb and question of every call, in order of arrival."""

    def on(self, verb: str, reply: Any, url: str = "http://x") -> None:
        self.replies[url, verb] = reply

    def questions(self, verb: str, url: str = "http://x") -> list[Any]:
        return [question for one, other, question in self.asked if (one, other) == (url, verb)]

    async def answer(self, url: str, verb: str, body: bytes) -> bytes:
        question = json.loads(body)
        self.asked.append((url, verb, question))
        await asyncio.sleep(0)
        reply = self.replies[url, verb]
        result = reply(question) if callable(reply) else reply
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, Exception):
            raise result
        return json.dumps(result).encode()


@pytest.fixture
def extenders(monkeypatch: pytest.MonkeyPatch) -> Extenders:
    """Whatever extenders the configuration names, they are these functions."""
    functions = Extenders()

    class Client:
        def __init__(self, config: Extender, clock: object, guard: object) -> None:
            self.name = config.url_prefix
            self._timeout = config.http_timeout_seconds

        async def send(self, verb: str, body: bytes) -> bytes:
            try:
                async with asyncio.timeout(self._timeout):
                    return await functions.answer(self.name, verb, body)
            except TimeoutError:
                raise ExtenderError(f"{self.name}/{verb}: timed out") from None

        order = send

        async def aclose(self) -> None: ...

    monkeypatch.setattr("ksched.extenders.http_client.HttpExtenderClient", Client)
    return functions


def http_answer(body: bytes, status: str = "200 OK", kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Server:
    """An HTTP server that is told for each verb how to treat whoever asks.

    ``treatments`` has by verb a coroutine function of the question and the writer; once it returns,
    the connection stays open for the next question.
    """

    def __init__(self) -> None:
        self.treatments: dict[str, Callable[[Any, asyncio.StreamWriter], Any]] = {}
        self.asked: list[tuple[str, Mapping[str, str], Any]] = []
        """Path, headers and question of every request."""
        self.address = ""
        self._tasks: set[asyncio.Task[Any]] = set()

    def questions(self, verb: str) -> list[Any]:
        return [question for path, _, question in self.asked if path.endswith(f"/{verb}")]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                path = head[0].split(" ")[1]
                pairs = (line.split(": ", 1) for line in head[1:] if line)
                headers = {name.lower(): value for name, value in pairs}
                body = await reader.readexactly(int(headers["content-length"]))
                question = json.loads(body)
                self.asked.append((path, headers, question))
                await self.treatments[path.rpartition("/")[2]](question, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def listening(self, **options: Any) -> AsyncIterator[Server]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, **options)
        host, port = server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def reply() -> Callable[..., Any]:
    """A treatment: answer with JSON, a value or a function of the question."""

    def treatment(answer: Any) -> Callable[[Any, asyncio.StreamWriter], Any]:
        async def treat(question: Any, writer: asyncio.StreamWriter) -> None:
            value = answer(question) if callable(answer) else answer
            writer.write(http_answer(json.dumps(value).encode()))

        return treat

    return treatment
