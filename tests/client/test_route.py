"""TLS through a proxy: the proxy connects, and sees nothing else."""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import asynccontextmanager

import pytest
import trustme

from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.client.tls import TlsSettings
from ksched.clock import LoopClock
from ksched.errors import Unavailable
from ksched.transport import NOT_SENT

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def serving(authority, host="127.0.0.1"):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    return context


class Proxy:
    """Connects to whatever it is asked for, or answers with ``refusal``."""

    def __init__(self, refusal=b""):
        self.refusal = refusal
        self.heads = []
        self.port = 0

    @asynccontextmanager
    async def listening(self, context=None):
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()

    async def _serve(self, reader, writer):
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self.refusal:
            writer.write(self.refusal)
            writer.close()
            return
        host, _, port = self.heads[-1].split(" ")[1].rpartition(":")
        there = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))


async def _copy(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def connected(config):
    transport = HttpTransport(config, LoopClock())
    try:
        yield transport
    finally:
        await transport.aclose()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_everything_goes_through_the_tunnel_of_a_proxy(
    authority, tmp_path, raw_server, wire, scheme
):
    async def handle(asked, writer):
        if asked.path.endswith("/watch"):
            writer.write(wire.stream_head + wire.chunk(b"one\n") + b"0\r\n\r\n")
        else:
            writer.write(wire.answer(asked.body))

    ca_file = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(str(ca_file))
    server = await raw_server(handle, ssl=serving(authority, "cluster.example"))
    async with Proxy().listening(serving(authority) if scheme == "https" else None) as proxy:
        config = ClientConfig(
            f"https://127.0.0.1:{server.port}/k8s",
            tls=TlsSettings(ca_file=ca_file, server_name="cluster.example"),
            proxy=f"{scheme}://me:p%40ss@127.0.0.1:{proxy.port}",
        )
        async with connected(config) as transport:
            for number in range(3):
                body = str(number).encode()
                assert (await transport.request("POST", "/x", body)).body == body
            assert (await transport.request("GET", "/x", b"list")).body == b"list"
            async with transport.stream("/watch", idle_timeout=20) as stream:
                assert [line async for line in stream.lines] == [b"one\n"]
    assert [asked.path for asked in server.asked] == ["/k8s/x"] * 4 + ["/k8s/watch"]
    assert not any(asked.header("proxy-authorization") for asked in server.asked)
    assert len(proxy.heads) == server.connections == 2
    secret = base64.b64encode(b"me:p@ss").decode()
    for head in proxy.heads:
        assert head.startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n")
        assert f"\r\nProxy-Authorization: Basic {secret}\r\n" in head


async def test_proxy_of_plain_requests_gets_the_password(raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.answer())

    proxy = await raw_server(handle)
    config = ClientConfig("http://cluster.invalid", proxy=f"http://me:no@127.0.0.1:{proxy.port}")
    async with connected(config) as transport:
        await transport.request("GET", "/x")
    (asked,) = proxy.asked
    assert asked.path == "http://cluster.invalid/x"
    assert asked.header("host") == "cluster.invalid"
    assert base64.b64decode(asked.header("proxy-authorization").split()[1]) == b"me:no"


@pytest.mark.parametrize(
    ("refusal", "problem"),
    [
        pytest.param(
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "answered 'HTTP/1.1 407",
            id="407",
        ),
        pytest.param(b"SSH-2.0\r\n\r\n", "answered 'SSH-2.0'", id="another protocol"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nhello", "answered 'HTTP/1.1 200", id="speaks first"),
        pytest.param(b"x" * (100 << 10), "answered 'xxx", id="endless"),
        pytest.param(b"HTTP/1.1 2", "closed the connection", id="half an answer"),
    ],
)
async def test_proxy_that_does_not_connect_is_unavailable(refusal, problem):
    async with Proxy(refusal).listening() as proxy:
        config = ClientConfig(
            "https://cluster.invalid:6443", proxy=f"http://me:hunter2@127.0.0.1:{proxy.port}"
        )
        async with connected(config) as transport:
            for method in ("GET", "POST"):
                with pytest.raises(Unavailable, match=problem) as caught:
                    await transport.request(method, "/x", b"", timeout=20)
                assert caught.value.reason == NOT_SENT
                way = f"cluster.invalid:6443 through the proxy 127.0.0.1:{proxy.port}: "
                assert way in caught.value.message
                assert "hunter2" not in caught.value.message


async def test_certificate_of_the_server_is_verified_through_a_proxy(
    authority, tmp_path, raw_server, wire
):
    async def handle(asked, writer):
        writer.write(wire.answer())

    ca_file = tmp_path / "ca.crt"
    trustme.CA().cert_pem.write_to_path(str(ca_file))
    server = await raw_server(handle, ssl=serving(authority))
    async with Proxy().listening() as proxy:
        config = ClientConfig(
            f"https://127.0.0.1:{server.port}",
            tls=TlsSettings(ca_file=ca_file),
            proxy=f"http://127.0.0.1:{proxy.port}",
        )
        async with connected(config) as transport:
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await transport.request("POST", "/x", b"", timeout=20)
    assert server.asked == []
