"""A certificate for each name by which the port is called, in real handshakes."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme
from cryptography import x509

from ksched.apiserver.in_process import InProcessTransport
from ksched.configuration.serving_flags import NamedPair, ServingOptions
from ksched.errors import ConfigError
from ksched.metrics import Metrics
from ksched.testing.harness import cluster
from ksched.testing.virtual_time import VirtualClock
from ksched.web.named_certificates import find, names_of
from ksched.web.secure_serving import SecureServing
from ksched.web.server_context import Authorities
from ksched.web.server_tls import ServerTls
from ksched.web.web_server import WebServer

LOOPBACK = "127.0.0.1"


class Folder:
    """Certificates in files, by the serial number that a client sees."""

    def __init__(self, path):
        self.path = path
        self.authority = trustme.CA()
        self._count = itertools.count()

    def pair(self, *names, patterns=(), common_name=None, at=None):
        """Issue a certificate for ``names``; returns its pair and its serial number."""
        leaf = self.authority.issue_cert(*names, common_name=common_name)
        number = next(self._count) if at is None else at
        certificate, key = self.path / f"{number}.crt", self.path / f"{number}.key"
        certificate.write_bytes(leaf.cert_chain_pems[0].bytes())
        key.write_bytes(leaf.private_key_pem.bytes())
        serial = x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number
        return NamedPair(str(certificate), str(key), patterns), serial

    def options(self, *pairs, **more):
        default, self.default = self.pair("default.example")
        return ServingOptions(
            tls_cert_file=default.certificate,
            tls_private_key_file=default.key,
            tls_sni_cert_keys=pairs,
            **more,
        )


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def shown(context, name=None, client=None):
    """Connect in memory; returns the serial number of the certificate, and the server's side."""
    if client is None:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    certificate = x509.load_der_x509_certificate(near.getpeercert(binary_form=True))
    return certificate.serial_number, far


async def test_other_names_and_no_name_get_the_default(folder):
    pair, _ = folder.pair("a.example")
    context = ServerTls(folder.options(pair), VirtualClock()).context()
    for name in (None, "b.example", "x.a.example", "example", "aa.example", "127.0.0.1"):
        assert shown(context, name)[0] == folder.default


async def test_names_are_those_of_the_certificate(folder):
    pair, serial = folder.pair("a.example", "*.b.example", common_name="c.example")
    context = ServerTls(folder.options(pair), VirtualClock()).context()
    for name in ("a.example", "A.Example", "x.b.example", "c.example"):
        assert shown(context, name)[0] == serial
    for name in ("b.example", "x.y.b.example"):
        assert shown(context, name)[0] == folder.default, "a wildcard is for one label"


async def test_given_names_replace_those_of_the_certificate(folder):
    pair, serial = folder.pair("a.example", patterns=("*.Z.example", "z"))
    context = ServerTls(folder.options(pair), VirtualClock()).context()
    assert shown(context, "a.example")[0] == folder.default
    assert shown(context, "x.z.example")[0] == serial
    assert shown(context, "z")[0] == serial


async def test_given_names_come_first_and_then_the_order(folder):
    first, one = folder.pair("a.example", "b.example")
    second, _ = folder.pair("a.example")
    third, three = folder.pair("c.example", patterns=("b.example",))
    fourth, _ = folder.pair("d.example", patterns=("b.example",))
    options = folder.options(first, second, third, fourth)
    context = ServerTls(options, VirtualClock()).context()
    assert shown(context, "a.example")[0] == one
    assert shown(context, "b.example")[0] == three


async def test_without_a_name_the_address_decides_if_it_was_given(folder):
    pair, serial = folder.pair("10.0.0.7", "127.0.0.1", patterns=("10.0.0.7", "FD00::1"))
    tls = ServerTls(folder.options(pair), VirtualClock())
    assert shown(tls.context("10.0.0.7"))[0] == serial
    assert shown(tls.context("fd00::1"))[0] == serial
    assert shown(tls.context("127.0.0.1"))[0] == folder.default
    assert shown(tls.context("10.0.0.7"), "default.example")[0] == folder.default


def test_addresses_and_sentences_are_no_names(folder):
    for name in ("10.0.0.7", "a name", "UPPER.example", "a..b", "-a"):
        pair, _ = folder.pair("10.0.0.8", common_name=name)
        assert names_of((folder.path / pair.certificate).read_bytes()) == []


@pytest.mark.parametrize(
    ("name", "found"), [("a.b", 1), ("x.b", 2), ("x", 3), ("x.y.b", None), ("b", 3)]
)
def test_names_are_found_whole_or_by_their_first_label(name, found):
    assert find({"a.b": 1, "*.b": 2, "*": 3}, name) == found


async def test_changed_files_are_used_for_new_connections(folder, caplog):
    pair, old = folder.pair("a.example", at="x")
    tls = ServerTls(folder.options(pair), VirtualClock())
    first = tls.context()
    tls.reload()
    assert tls.context() is first
    _, new = folder.pair("a.example", "b.example", at="x")
    tls.reload()
    assert shown(first, "a.example")[0] == old
    assert shown(tls.context(), "b.example")[0] == new
    (folder.path / "x.key").write_bytes(b"half")
    tls.reload()
    assert shown(tls.context(), "b.example")[0] == new
    assert f"--tls-sni-cert-key: cannot use {pair.certificate} and" in caplog.records[-1].err


async def test_files_that_cannot_be_used_stop_the_start(folder):
    missing = NamedPair(str(folder.path / "no"), "/no")
    with pytest.raises(ConfigError, match=r"--tls-sni-cert-key: cannot use .*No such file"):
        ServerTls(folder.options(missing), VirtualClock())
    pair, _ = folder.pair("a.example")
    other, _ = folder.pair("b.example")
    mixed = NamedPair(pair.certificate, other.key)
    with pytest.raises(ConfigError, match=r"--tls-sni-cert-key: cannot use .*: .*mismatch"):
        ServerTls(folder.options(mixed), VirtualClock())


@pytest.mark.parametrize("name", ["a.example", "default.example"])
async def test_client_certificates_are_verified_whatever_the_name(folder, name):
    pair, _ = folder.pair("a.example")
    tls = ServerTls(folder.options(pair, tls_min_version="VersionTLS13"), VirtualClock())
    users, proxies = trustme.CA(), trustme.CA()
    tls.set_cluster_users(users.cert_pem.bytes())
    tls.set_cluster_proxies(proxies.cert_pem.bytes())

    def client(authority) -> Any:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        authority.issue_cert("x@y").configure_cert(context)
        return context

    for authority, expected in (
        (users, Authorities(users=users.cert_pem.bytes())),
        (proxies, Authorities(proxies=proxies.cert_pem.bytes())),
    ):
        _, far = shown(tls.context(), name, client(authority))
        assert far.context.verified_by(far) == expected
    with pytest.raises(ssl.SSLError):
        shown(tls.context(), name, client(trustme.CA()))
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shown(tls.context(), name, old)


@asynccontextmanager
async def port(options):
    async with cluster() as c:
        transport = InProcessTransport(c.server)
        serving = SecureServing(options, transport, transport, c.clock)
        server = WebServer(c.scheduler, Metrics(), live={}, ready={}, access=serving.access)
        async with server.listening(LOOPBACK, 0, serving.tls.context) as url:
            yield int(url.rpartition(":")[2])


@pytest.mark.real_time
async def test_each_name_of_the_port_has_its_certificate_and_its_users(folder):
    named, serial = folder.pair("a.example")
    local, of_address = folder.pair("x.example", patterns=(LOOPBACK,))
    users = trustme.CA()
    users.cert_pem.write_to_path(folder.path / "ca")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    users.issue_cert("x@y", common_name="ada").configure_cert(client)

    async def ask(number, name):
        reader, writer = await asyncio.open_connection(
            LOOPBACK, number, ssl=client, server_hostname=name
        )
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status = int((await reader.readline()).split()[1])
        writer.transport.abort()
        return x509.load_der_x509_certificate(der).serial_number, status

    options = folder.options(named, local, client_ca_file=str(folder.path / "ca"))
    async with port(options) as number:
        assert await ask(number, "a.example") == (serial, 200)
        assert await ask(number, "default.example") == (folder.default, 200)
        assert await ask(number, "") == (of_address, 200)
