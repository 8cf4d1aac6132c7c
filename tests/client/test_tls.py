"""Certificates, headers and proxies, over real sockets and TLS."""

from __future__ import annotations

import os
import ssl
import sys
from pathlib import Path

import pytest
import trustme

from ksched.client.exec_credentials import ExecCredentials, ExecSpec
from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.client.tls import TlsSettings
from ksched.clock import LoopClock
from ksched.errors import Unavailable
from ksched.transport import NOT_SENT

pytestmark = pytest.mark.real_time
V1 = "client.authentication.k8s.io/v1"


@pytest.fixture
async def connect():
    made = []

    def make(config, **options):
        made.append(HttpTransport(config, LoopClock(), **options))
        return made[-1]

    yield make
    for transport in made:
        await transport.aclose()


# -- certificates -------------------------------------------------------------------------------


class Authority:
    """A certificate authority, a server that demands client certificates, and their files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca_file = folder / "ca.crt"
        self.ca.cert_pem.write_to_path(str(self.ca_file))

    def server_context(self, *, verify_clients=False, host="127.0.0.1"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(host).configure_cert(context)
        if verify_clients:
            context.verify_mode = ssl.CERT_REQUIRED
            self.ca.configure_trust(context)
        return context

    def write_client(self, name):
        cert = self.ca.issue_cert(f"{name}@example.org", common_name=name)
        text = b"".join(blob.bytes() for blob in cert.cert_chain_pems)
        (self.folder / "client.crt").write_bytes(text)
        (self.folder / "client.key").write_bytes(cert.private_key_pem.bytes())
        return text.decode(), cert.private_key_pem.bytes().decode()

    def settings(self, **more):
        return TlsSettings(ca_file=self.ca_file, **more)


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def client_name(writer):
    certificate = writer.get_extra_info("peercert")
    return dict(pair[0] for pair in certificate["subject"])["commonName"].encode()


async def test_tls_with_the_clusters_own_authority(authority, connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.answer(b"secure"))

    server = await raw_server(handle, ssl=authority.server_context())
    config = ClientConfig(f"https://127.0.0.1:{server.port}", tls=authority.settings())
    transport = connect(config)
    assert (await transport.request("POST", "/x", b"")).body == b"secure"
    assert (await transport.request("GET", "/x")).body == b"secure"


async def test_further_connections_resume_the_session(authority, connect, raw_server, wire):
    resumed = []

    async def handle(asked, writer):
        resumed.append(writer.get_extra_info("ssl_object").session_reused)
        writer.write(wire.answer(client_name(writer)))
        return False

    authority.write_client("monday")
    server = await raw_server(handle, ssl=authority.server_context(verify_clients=True))
    tls = authority.settings(
        certificate_file=authority.folder / "client.crt", key_file=authority.folder / "client.key"
    )
    transport = connect(
        ClientConfig(f"https://127.0.0.1:{server.port}", tls=tls), identity_seconds=0.0
    )
    for _ in range(3):
        assert (await transport.request("GET", "/api/v1/nodes/n")).body == b"monday"
    authority.write_client("tuesday")
    for _ in range(2):
        assert (await transport.request("GET", "/api/v1/nodes/n")).body == b"tuesday"
    assert resumed == [False, True, True, False, True]


async def test_a_session_the_server_does_not_know_is_made_anew(
    authority, connect, raw_server, wire
):
    resumed = []

    async def handle(asked, writer):
        resumed.append(writer.get_extra_info("ssl_object").session_reused)
        writer.write(wire.answer())
        return False

    first = await raw_server(handle, ssl=authority.server_context())
    second = await raw_server(handle, ssl=authority.server_context())
    transport = connect(ClientConfig(f"https://127.0.0.1:{first.port}", tls=authority.settings()))
    await transport.request("POST", "/x", b"")
    transport._pool._route.port = second.port
    await transport.request("POST", "/x", b"")
    await transport.request("POST", "/x", b"")
    assert resumed == [False, False, True]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("settings", "ok"),
    [
        pytest.param({}, False, id="unknown authority"),
        pytest.param({"insecure": True}, True, id="told not to check"),
    ],
)
async def test_unknown_authority_is_refused_unless_told_otherwise(
    authority, connect, raw_server, wire, method, settings, ok
):
    async def handle(asked, writer):
        writer.write(wire.answer())

    server = await raw_server(handle, ssl=authority.server_context())
    config = ClientConfig(f"https://127.0.0.1:{server.port}", tls=TlsSettings(**settings))
    if ok:
        assert (await connect(config).request(method, "/x", b"")).status == 200
    else:
        with pytest.raises(Unavailable, match="certificate verify failed") as caught:
            await connect(config).request(method, "/x", b"")
        assert caught.value.reason == NOT_SENT
        assert server.asked == []


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_tls_server_name_is_what_the_certificate_is_checked_against(
    authority, connect, raw_server, wire, method
):
    async def handle(asked, writer):
        writer.write(wire.answer())

    context = authority.server_context(host="kubernetes.default.svc")
    server = await raw_server(handle, ssl=context)
    url = f"https://127.0.0.1:{server.port}"
    right = authority.settings(server_name="kubernetes.default.svc")
    assert (await connect(ClientConfig(url, tls=right)).request(method, "/x", b"")).status == 200
    with pytest.raises(Unavailable, match="IP address mismatch"):
        await connect(ClientConfig(url, tls=authority.settings())).request(method, "/x", b"")


async def test_rotated_client_certificate_is_used_for_new_requests(
    authority, connect, raw_server, wire
):
    async def handle(asked, writer):
        writer.write(wire.answer(client_name(writer)))

    authority.write_client("monday")
    server = await raw_server(handle, ssl=authority.server_context(verify_clients=True))
    tls = authority.settings(
        certificate_file=authority.folder / "client.crt", key_file=authority.folder / "client.key"
    )
    config = ClientConfig(f"https://127.0.0.1:{server.port}", tls=tls)
    transport = connect(config, identity_seconds=0.0)
    for method in ("POST", "GET", "POST"):
        assert (await transport.request(method, "/x", b"")).body == b"monday"
    authority.write_client("tuesday")
    for method in ("POST", "GET"):
        assert (await transport.request(method, "/x", b"")).body == b"tuesday"


async def test_half_written_certificate_keeps_the_old_one_in_use(
    authority, connect, raw_server, wire
):
    async def handle(asked, writer):
        writer.write(wire.answer(client_name(writer)))

    authority.write_client("monday")
    server = await raw_server(handle, ssl=authority.server_context(verify_clients=True))
    crt = authority.folder / "client.crt"
    tls = authority.settings(certificate_file=crt, key_file=authority.folder / "client.key")
    config = ClientConfig(f"https://127.0.0.1:{server.port}", tls=tls)
    transport = connect(config, identity_seconds=0.0)
    await transport.request("POST", "/x", b"")
    crt.write_text("-----BEGIN CERTIFICATE-----\nhalf")
    assert (await transport.request("POST", "/x", b"")).body == b"monday"
    authority.write_client("tuesday")
    assert (await transport.request("POST", "/x", b"")).body == b"tuesday"


async def test_rotated_authority_is_trusted(authority, connect, raw_server, wire, tmp_path):
    async def handle(asked, writer):
        writer.write(wire.answer())

    other = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    other.issue_cert("127.0.0.1").configure_cert(context)
    server = await raw_server(handle, ssl=context)
    config = ClientConfig(f"https://127.0.0.1:{server.port}", tls=authority.settings())
    transport = connect(config, identity_seconds=0.0)
    with pytest.raises(Unavailable, match="certificate verify failed"):
        await transport.request("POST", "/x", b"")
    other.cert_pem.write_to_path(str(authority.ca_file))
    assert (await transport.request("POST", "/x", b"")).status == 200


async def test_exec_program_may_give_a_certificate(authority, connect, raw_server, wire, tmp_path):
    async def handle(asked, writer):
        writer.write(wire.answer(client_name(writer)))

    authority.write_client("by-program")
    folder = str(authority.folder)
    path = tmp_path / "program.py"
    path.write_text(
        "import json, pathlib\n"
        f"folder = pathlib.Path({folder!r})\n"
        "status = {'clientCertificateData': (folder / 'client.crt').read_text(),"
        " 'clientKeyData': (folder / 'client.key').read_text()}\n"
        f"print(json.dumps({{'apiVersion': {V1!r}, 'kind': 'ExecCredential', 'status': status}}))"
    )
    server = await raw_server(handle, ssl=authority.server_context(verify_clients=True))
    config = ClientConfig(
        f"https://127.0.0.1:{server.port}",
        tls=authority.settings(),
        credentials=ExecCredentials(ExecSpec(V1, sys.executable, ("-S", str(path))), LoopClock()),
    )
    transport = connect(config)
    assert (await transport.request("POST", "/x", b"")).body == b"by-program"
    assert (await transport.request("GET", "/x")).body == b"by-program"


async def test_no_key_stays_behind_on_disk(authority, connect, tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    certificate, key = authority.write_client("x")
    tls = authority.settings(certificate_data=certificate, key_data=key)
    with pytest.raises(Unavailable):
        await connect(ClientConfig("https://127.0.0.1:1", tls=tls)).request("POST", "/x", b"")
    assert os.listdir(folder) == []


async def test_a_failed_connection_is_told_without_the_settings_of_tls(authority, connect):
    transport = connect(ClientConfig("https://127.0.0.1:1", tls=authority.settings()))
    with pytest.raises(Unavailable, match=r": GET /x: cannot reach 127.0.0.1:1: \[Errno"):
        await transport.request("GET", "/x")


# -- headers and proxies ------------------------------------------------------------------------


async def test_impersonation_headers_are_sent_with_every_request(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.answer())

    server = await raw_server(handle)
    headers = (("Impersonate-User", "u"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    transport = connect(ClientConfig(f"http://127.0.0.1:{server.port}", headers=headers))
    await transport.request("POST", "/x", b"")
    await transport.request("GET", "/x")
    for asked in server.asked:
        assert asked.header("impersonate-user") == "u"
        assert asked.header("impersonate-group") == "a, b"


async def test_everything_goes_through_a_proxy_when_there_is_one(connect, raw_server, wire):
    async def handle(asked, writer):
        writer.write(wire.answer(b"via proxy"))

    proxy = await raw_server(handle)
    config = ClientConfig("http://cluster.invalid:8080", proxy=f"http://127.0.0.1:{proxy.port}")
    transport = connect(config)
    for method in ("GET", "POST"):
        assert (await transport.request(method, "/x", b"{}")).body == b"via proxy"
    assert [asked.path for asked in proxy.asked] == ["http://cluster.invalid:8080/x"] * 2
    assert proxy.asked[1].body == b"{}"


async def test_environment_does_not_redirect_requests(connect, raw_server, wire, monkeypatch):
    async def handle(asked, writer):
        writer.write(wire.answer())

    server = await raw_server(handle)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    transport = connect(ClientConfig(f"http://127.0.0.1:{server.port}"))
    assert (await transport.request("GET", "/x")).status == 200
