"""The way to an extender: URLs, TLS and who may give orders, over real sockets."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from ksched.clock import LoopClock
from ksched.configuration.extenders import Extender
from ksched.election.fence import WriteFence
from ksched.errors import ExtenderError
from ksched.extenders.http_client import HttpExtenderClient

pytestmark = pytest.mark.real_time


def extender(**fields: Any) -> Extender:
    """An extender's configuration as a user writes it."""
    return Extender.model_validate(fields)


@pytest.fixture
async def connect():
    made = []

    def make(config: Extender, **options: Any) -> HttpExtenderClient:
        made.append(HttpExtenderClient(config, LoopClock(), environ={}, **options))
        return made[-1]

    yield make
    for client in made:
        await client.aclose()


@pytest.fixture
async def echo(raw_server, wire):
    """A server that answers whatever it is asked with the body it was sent."""

    async def handle(asked, writer):
        writer.write(wire.answer(asked.body))

    return await raw_server(handle)


# -- addresses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "verb", "path"),
    [
        pytest.param("", "filter", "/filter", id="no path"),
        pytest.param("///", "filter", "/filter", id="slashes"),
        pytest.param("/api/v1/", "filter", "/api/v1/filter", id="path"),
        pytest.param("/api", "a/b", "/api/a/b", id="verb of two parts"),
        pytest.param("/a b", "f", "/a%20b/f", id="space"),
        pytest.param("/a%2Fb", "f", "/a%2Fb/f", id="escaped already"),
        pytest.param("/api?key=1", "f", "/api?key=1/f", id="a query, as Go joins it"),
    ],
)
async def test_verbs_are_appended_to_the_prefix(connect, echo, prefix, verb, path) -> None:
    client = connect(extender(urlPrefix=f"http://127.0.0.1:{echo.port}{prefix}"))

    assert await client.send(verb, b'{"a":1}') == b'{"a":1}'
    (asked,) = echo.asked
    assert (asked.method, asked.path) == ("POST", path)
    assert asked.header("content-type") == "application/json"
    assert asked.header("authorization") == ""


async def test_token_in_a_query_is_sent_and_never_shown(connect, raw_server, wire) -> None:
    async def handle(asked, writer):
        writer.write(wire.answer(b"no", 500))

    server = await raw_server(handle)
    address = f"127.0.0.1:{server.port}"
    client = connect(extender(urlPrefix=f"http://{address}/api"))
    with pytest.raises(ExtenderError) as raised:
        await client.send("filter?token=hunter2", b"{}")

    assert server.asked[0].path == "/api/filter?token=hunter2"
    assert f"with extender at URL http://{address}/api/filter, code 500" in str(raised.value)
    assert "hunter2" not in str(raised.value)


async def test_error_of_a_proxy_does_not_tell_its_password() -> None:
    proxy = {"HTTP_PROXY": "http://me:hunter2@127.0.0.1:1"}
    client = HttpExtenderClient(extender(urlPrefix="http://x.invalid"), LoopClock(), environ=proxy)
    with pytest.raises(ExtenderError) as raised:
        await client.send("filter?token=hunter2", b"{}")
    await client.aclose()

    assert "hunter2" not in str(raised.value)


async def test_user_and_password_are_sent_and_never_shown(connect, raw_server, wire) -> None:
    async def handle(asked, writer):
        writer.write(wire.answer(b"", 403))

    server = await raw_server(handle)
    address = f"127.0.0.1:{server.port}"
    client = connect(extender(urlPrefix=f"http://me:p%40ss@{address}/x?token=sesame"))

    with pytest.raises(ExtenderError) as raised:
        await client.send("filter", b"{}")

    assert str(raised.value) == f"failed filter with extender at URL http://{address}/x, code 403"
    assert client.name == f"http://{address}/x"
    (asked,) = server.asked
    assert asked.header("authorization") == f"Basic {base64.b64encode(b'me:p@ss').decode()}"
    assert asked.header("host") == address


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://h/", "http://", "https:///x", "unix:/run"])
def test_address_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^urlPrefix: must be an http or https URL"):
        HttpExtenderClient(extender(urlPrefix=url), LoopClock())


async def test_proxy_of_the_environment_is_used(raw_server, wire) -> None:
    async def handle(asked, writer):
        writer.write(wire.answer(b"{}"))

    proxy = await raw_server(handle)
    environ = {"HTTP_PROXY": f"http://127.0.0.1:{proxy.port}"}
    config = extender(urlPrefix="http://extender.example/api")
    client = HttpExtenderClient(config, LoopClock(), environ=environ)
    try:
        assert await client.send("filter", b"{}") == b"{}"
    finally:
        await client.aclose()
    assert [asked.path for asked in proxy.asked] == ["http://extender.example/api/filter"]


# -- connections --------------------------------------------------------------------------------


async def test_client_may_be_used_after_it_was_closed(connect, echo) -> None:
    client = connect(extender(urlPrefix=f"http://127.0.0.1:{echo.port}"))
    await client.send("filter", b"1")
    await client.aclose()

    assert await client.send("filter", b"2") == b"2"
    assert echo.connections == 2


async def test_only_a_leader_gives_orders(connect, echo) -> None:
    lease = 10.0
    fence = WriteFence(lambda: lease)
    config = extender(urlPrefix=f"http://127.0.0.1:{echo.port}", httpTimeout="200ms")
    client = connect(config, guard=fence.guard)
    assert await client.order("bind", b"1") == b"1"
    lease = 0.0

    with pytest.raises(ExtenderError, match=r"failed bind .*only the leader may write"):
        await client.order("bind", b"2")
    assert await client.send("filter", b"3") == b"3"
    assert [asked.body for asked in echo.asked] == [b"1", b"3"]


# -- TLS ----------------------------------------------------------------------------------------


class Authority:
    """A certificate authority, and a server that says who asked."""

    def __init__(
        self, folder: Path, start: Callable[..., Any], answer: Callable[..., bytes]
    ) -> None:
        self.ca = trustme.CA()
        self.folder, self._start, self._answer = folder, start, answer

    async def serve(self, host: str = "127.0.0.1", *, verify_clients: bool = False) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(host).configure_cert(context)
        if verify_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            self.ca.configure_trust(context)

        async def handle(asked: Any, writer: Any) -> None:
            peer = writer.get_extra_info("peercert") or {"subject": ()}
            names = dict(pair[0] for pair in peer["subject"])
            writer.write(self._answer(names.get("commonName", "nobody").encode()))

        server = await self._start(handle, ssl=context)
        return f"https://127.0.0.1:{server.port}"

    def write(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def client(self, name: str) -> tuple[bytes, bytes]:
        pair = self.ca.issue_cert(f"{name}@example.org", common_name=name)
        return pair.cert_chain_pems[0].bytes(), pair.private_key_pem.bytes()


@pytest.fixture
def authority(tmp_path, raw_server, wire) -> Authority:
    return Authority(tmp_path, raw_server, wire.answer)


def inline(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("form", ["file", "data"])
async def test_server_is_verified_by_the_given_authority(connect, authority, form) -> None:
    pem = authority.ca.cert_pem.bytes()
    tls = {"caData": inline(pem)} if form == "data" else {"caFile": authority.write("ca", pem)}
    url = await authority.serve()

    client = connect(extender(urlPrefix=url, enableHTTPS=True, tlsConfig=tls))

    assert await client.send("filter", b"{}") == b"nobody"


@pytest.mark.parametrize("form", ["files", "data"])
async def test_client_certificate_is_presented(connect, authority, form) -> None:
    certificate, key = authority.client("ksched")
    tls = {"caData": inline(authority.ca.cert_pem.bytes())}
    if form == "data":
        tls |= {"certData": inline(certificate), "keyData": inline(key)}
    else:
        tls |= {
            "certFile": authority.write("tls.crt", certificate),
            "keyFile": authority.write("tls.key", key),
        }
    url = await authority.serve(verify_clients=True)

    client = connect(extender(urlPrefix=url, enableHTTPS=True, tlsConfig=tls))

    assert await client.send("filter", b"{}") == b"ksched"


async def test_server_name_replaces_the_urls_host(connect, authority) -> None:
    ca = inline(authority.ca.cert_pem.bytes())
    url = await authority.serve("extender.svc")
    right = connect(extender(urlPrefix=url, tlsConfig={"caData": ca, "serverName": "extender.svc"}))
    wrong = connect(extender(urlPrefix=url, tlsConfig={"caData": ca}))

    assert await right.send("filter", b"{}") == b"nobody"
    with pytest.raises(ExtenderError, match=r"failed filter .*certificate verify failed"):
        await wrong.send("filter", b"{}")


@pytest.mark.parametrize(
    ("settings", "is_trusted"),
    [
        pytest.param({}, False, id="authorities of the system"),
        pytest.param({"enableHTTPS": True}, True, id="enableHTTPS without a CA"),
        pytest.param({"tlsConfig": {"insecure": True}}, True, id="insecure"),
        pytest.param({"tlsConfig": {"serverName": "x"}}, False, id="settings without a CA"),
    ],
)
async def test_unknown_authority(connect, authority, settings, is_trusted) -> None:
    """extender.go: makeTransport, v1.36: enableHTTPS without a CA verifies nothing."""
    client = connect(extender(urlPrefix=await authority.serve(), **settings))

    if is_trusted:
        assert await client.send("filter", b"{}") == b"nobody"
    else:
        with pytest.raises(ExtenderError, match="certificate verify failed"):
            await client.send("filter", b"{}")


@pytest.mark.parametrize(
    ("tls", "problem"),
    [
        pytest.param({"caFile": "/no/such/file"}, "No such file.*/no/such/file", id="no file"),
        pytest.param({"caData": inline(b"x")}, "tlsConfig: ", id="no PEM"),
        pytest.param({"insecure": True, "caData": inline(b"x")}, "insecure", id="contradiction"),
        pytest.param({"keyFile": "/k"}, "belong together", id="key alone"),
    ],
)
def test_tls_settings_that_cannot_work_are_refused_at_once(tls, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        HttpExtenderClient(extender(urlPrefix="https://h", tlsConfig=tls), LoopClock())


async def test_https_that_meets_plain_http_fails_with_a_reason(connect, echo) -> None:
    client = connect(extender(urlPrefix=f"https://127.0.0.1:{echo.port}", enableHTTPS=True))

    with pytest.raises(
        ExtenderError, match=r"failed filter with extender at URL https://127.0.0.1"
    ):
        await client.send("filter", b"{}")
