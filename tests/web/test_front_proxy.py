"""A proxy that names users in headers, and everybody who pretends to be one.

Covers ``ksched.web.server_context`` too.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec
import pytest
import trustme
from yarl import URL

from ksched.apiserver.access_reviews import ACCESS_REVIEWS
from ksched.apiserver.in_process import InProcessTransport
from ksched.configuration.front_proxy import FrontProxy
from ksched.configuration.serving_flags import ServingOptions
from ksched.errors import ConfigError
from ksched.metrics import Metrics
from ksched.testing.harness import cluster
from ksched.testing.virtual_time import VirtualClock
from ksched.transport import Response
from ksched.web.access_reviews import User
from ksched.web.front_proxy import proxied_user
from ksched.web.secure_serving import CA_CONFIG_MAP, SecureServing
from ksched.web.server_context import Authorities
from ksched.web.server_tls import ServerTls
from ksched.web.web_server import WebServer

real_time = pytest.mark.real_time
LOOPBACK = "127.0.0.1"
ADA = [("X-Remote-User", "ada")]
MASTER = [*ADA, ("X-Remote-Group", "system:masters")]


class Recording(InProcessTransport):
    """Keeps who was reviewed."""

    def __init__(self, server):
        super().__init__(server)
        self.reviewed = []

    async def request(self, method, path, body=None, **options) -> Response:
        if path == ACCESS_REVIEWS:
            self.reviewed.append(json.loads(body)["spec"])
        return await super().request(method, path, body, **options)


def client_of(authority=None, name="aggregator", *, version=None, **more):
    """A client with a certificate, whoever signed it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if version:
        context.maximum_version = version
    if authority is not None:
        authority.issue_cert("x@y", common_name=name, **more).configure_cert(context)
    return context


class Port:
    def __init__(self, url, serving, transport, server):
        self.url, self.serving, self.server = url, serving, server
        self.transport = transport

    @property
    def reviewed(self):
        return self.transport.reviewed

    async def get(self, client, headers=(), path="/metrics"):
        """Send headers as they are, on a connection of its own; returns the status."""
        url = URL(self.url)
        reader, writer = await asyncio.open_connection(url.host, url.port, ssl=client)
        try:
            lines = [f"GET {path} HTTP/1.1", "Host: x", *(f"{n}: {v}" for n, v in headers)]
            writer.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
            first = await reader.readline()
        finally:
            writer.transport.abort()
        if not first:
            raise ConnectionError("closed")
        return int(first.split()[1])


@asynccontextmanager
async def port(folder, users=None, proxies=None, **front_proxy):
    more: dict[str, Any] = {}
    for field, authority in (
        ("client_ca_file", users),
        ("requestheader_client_ca_file", proxies),
    ):
        if authority is not None:
            file = folder / field
            file.write_bytes(authority.cert_pem.bytes())
            more[field] = str(file)
    options = ServingOptions(front_proxy=FrontProxy(**front_proxy), **more)
    async with cluster() as c:
        transport = Recording(c.server)
        serving = SecureServing(options, transport, transport, c.clock)
        server = WebServer(c.scheduler, Metrics(), live={}, ready={}, access=serving.access)
        async with server.listening(LOOPBACK, 0, serving.tls.context) as url:
            yield Port(url, serving, transport, c.server)


# -- who is not believed --------------------------------------------------------------------------


@real_time
@pytest.mark.parametrize("headers", [ADA, MASTER, [("x-remote-user", "system:admin")]])
async def test_headers_without_a_certificate_are_nothing(tmp_path, headers):
    async with port(tmp_path, trustme.CA(), trustme.CA()) as site:
        assert await site.get(client_of(), headers) == 401
        assert not site.reviewed


@real_time
async def test_headers_are_nothing_where_no_proxy_is_known(tmp_path):
    users = trustme.CA()
    async with port(tmp_path, users) as site:
        assert await site.get(client_of(), MASTER) == 401
        bob = client_of(users, "bob", organization_name="readers")
        assert await site.get(bob, MASTER) == 200
        assert [(spec["user"], spec["groups"]) for spec in site.reviewed] == [
            ("bob", ["readers", "system:authenticated"])
        ]


@real_time
async def test_a_certificate_of_neither_ca_does_not_even_connect(tmp_path):
    async with port(tmp_path, trustme.CA(), trustme.CA()) as site:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await site.get(client_of(trustme.CA()), MASTER)


@real_time
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_two_cas_are_not_confused(tmp_path, version):
    users, proxies = trustme.CA(), trustme.CA()
    async with port(tmp_path, users, proxies) as site:
        user = client_of(users, "bob", version=version)
        proxy = client_of(proxies, "bob", version=version)
        assert await site.get(user, MASTER) == 200
        assert [spec["user"] for spec in site.reviewed] == ["bob"], "by the certificate alone"
        assert await site.get(proxy) == 401, "a proxy without a word about a user is nobody"
        assert await site.get(proxy, [("X-Remote-Group", "system:masters")]) == 401
        assert await site.get(proxy, ADA) == 200
        assert [spec["user"] for spec in site.reviewed] == ["bob", "ada"]


@real_time
async def test_without_a_ca_of_users_a_proxy_is_no_user_either(tmp_path):
    proxies = trustme.CA()
    async with port(tmp_path, None, proxies) as site:
        master = client_of(proxies, "root", organization_name="system:masters")
        assert await site.get(master) == 401
        assert await site.get(master, ADA) == 200


@real_time
async def test_a_proxy_whose_name_is_not_allowed_is_not_believed(tmp_path):
    users, proxies = trustme.CA(), trustme.CA()
    async with port(tmp_path, users, proxies, allowed_names=("aggregator",)) as site:
        for name in ("Aggregator", "aggregator2", "aggregator,front", ""):
            assert await site.get(client_of(proxies, name or None), MASTER) == 401
        assert await site.get(client_of(proxies, "aggregator"), ADA) == 200
        assert await site.get(client_of(users, "aggregator"), MASTER) == 200
        assert [spec["user"] for spec in site.reviewed] == ["ada", "aggregator"]


@real_time
async def test_an_open_connection_of_a_ca_that_is_gone_names_nobody(tmp_path):
    proxies = trustme.CA()
    async with port(tmp_path, None, proxies) as site, aiohttp.ClientSession() as session:
        client = client_of(proxies)

        async def get():
            url = site.url + "/metrics"
            async with session.get(url, headers=list(ADA), ssl=client) as answer:
                await answer.read()
                return answer.status

        assert await get() == 200
        file = tmp_path / "requestheader_client_ca_file"
        file.write_bytes(trustme.CA().cert_pem.bytes())
        site.serving.tls.reload()
        assert await get() == 401


# -- who is believed ------------------------------------------------------------------------------


@real_time
async def test_one_ca_for_both_is_both(tmp_path):
    both = trustme.CA()
    async with port(tmp_path, both, both) as site:
        assert await site.get(client_of(both, "bob")) == 200
        assert await site.get(client_of(both, "bob"), ADA) == 200
        assert [spec["user"] for spec in site.reviewed] == ["bob", "ada"]


@real_time
async def test_the_proxied_user_comes_before_the_token(tmp_path):
    proxies = trustme.CA()
    async with port(tmp_path, None, proxies) as site:
        token = ("Authorization", "Bearer bob")
        assert await site.get(client_of(proxies), [*ADA, token]) == 200
        assert await site.get(client_of(proxies), [token]) == 200
        assert await site.get(client_of(), [*ADA, token]) == 200
        users = [spec["user"] for spec in site.reviewed]
        assert users[0] == "ada"
        assert len(set(users[1:])) == 1
        assert users[1] != "ada"


@real_time
async def test_everything_about_the_user_is_reviewed(tmp_path):
    proxies = trustme.CA()
    headers = [
        ("x-REMOTE-user", "ada"),
        ("X-Remote-User", "mallory"),
        ("X-Remote-Group", "dev"),
        ("x-remote-group", "ops"),
        ("X-Remote-Uid", "u1"),
        ("X-Remote-Extra-Example.com%2fScopes", "read"),
        ("x-remote-extra-example.com%2Fscopes", "write"),
    ]
    async with port(tmp_path, None, proxies, uid_headers=("X-Remote-Uid",)) as site:
        assert await site.get(client_of(proxies), headers) == 200
        assert site.reviewed == [
            {
                "user": "ada",
                "uid": "u1",
                "groups": ["dev", "ops", "system:authenticated"],
                "extra": {"example.com/scopes": ["read", "write"]},
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
            }
        ]
        site.server.reviews.denied_users.add("ada")
        assert await site.get(client_of(proxies), headers, "/configz") == 403


# -- the headers themselves -----------------------------------------------------------------------


def named(headers, name="aggregator", **front_proxy):
    return proxied_user(FrontProxy(**front_proxy), name, headers)


def test_nobody_is_named_without_a_name():
    for headers in ([], [("X-Remote-Group", "a")], [("X-Remote-User", "")]):
        assert named(headers) is None
    assert named([("X-Remote-User", ""), ("X-Remote-User", "ada")]) is None, "the first counts"
    assert named(ADA, username_headers=()) is None
    assert named([("X-Remote-User-Name", "ada"), ("X_Remote_User", "ada")]) is None


def test_the_first_header_with_a_name_decides():
    headers = [("A", ""), ("C", "bob"), ("b", "ada"), ("B", "eve")]
    user = named(headers, username_headers=("a", " B ", "c"))
    assert user == User("ada", ("system:authenticated",))


def test_groups_that_say_whether_the_user_is_authenticated_are_left_alone():
    unauthenticated = [*ADA, ("X-Remote-Group", "system:unauthenticated")]
    assert named(unauthenticated).groups == ("system:unauthenticated",)
    assert named([*ADA, ("X-Remote-Group", "system:authenticated")]).groups == (
        "system:authenticated",
    )
    assert named([("X-Remote-User", "system:anonymous")]).groups == ()
    assert named([*ADA, ("X-Remote-Group", ""), ("X-Remote-Group", "a,b")]).groups == (
        *("a,b", "system:authenticated"),
    )


def test_keys_of_extra_are_decoded_if_they_can_be():
    extra = named(
        [*ADA, ("X-Remote-Extra-A%2fB", "1"), ("X-Remote-Extra-C%2", "2"), ("X-Other-D", "3")]
    ).extra
    assert extra == {"a/b": ("1",), "c%2": ("2",)}
    assert named(ADA, extra_prefixes=("", " ")).extra == {}


def test_what_is_no_utf8_can_be_reviewed_all_the_same():
    user = named([("X-Remote-User", b"ad\xff".decode(errors="surrogateescape"))])
    assert user.name == "ad\ufffd"
    msgspec.json.encode(user)


# -- what the cluster says ------------------------------------------------------------------------


async def serve(transport, **data):
    namespace, _, name = CA_CONFIG_MAP.rpartition("/")
    data = {key.replace("_", "-"): value for key, value in data.items()}
    body = msgspec.json.encode({"metadata": {"name": name}, "data": data})
    answer = await transport.request("POST", namespace, body)
    if answer.status == 409:
        answer = await transport.request("PUT", CA_CONFIG_MAP, body)
    assert answer.status in (200, 201)


@real_time
async def test_the_cluster_names_ca_and_headers_together(tmp_path, caplog):
    users, proxies = trustme.CA(), trustme.CA()
    texts = [one.cert_pem.bytes().decode().strip() for one in (users, proxies)]
    described = {
        "client_ca_file": texts[0],
        "requestheader_client_ca_file": texts[1],
        "requestheader_allowed_names": '["aggregator"]',
        "requestheader_username_headers": '["X-Forwarded-User"]',
    }
    async with port(tmp_path) as site:
        forwarded = [("X-Forwarded-User", "ada")]
        look_up = site.serving._look_up
        await serve(site.transport, **described)
        await look_up()
        assert site.serving.tls.authorities == Authorities(*(text.encode() for text in texts))
        assert await site.get(client_of(proxies), forwarded) == 200
        assert await site.get(client_of(proxies), ADA) == 401
        assert await site.get(client_of(proxies, "other"), forwarded) == 401
        assert await site.get(client_of(users, "bob")) == 200

        bad = {**described, "requestheader_client_ca_file": "nonsense"}
        await serve(site.transport, **bad | {"requestheader_allowed_names": "[]"})
        await look_up()
        assert "requestheader-client-ca-file" in caplog.records[-1].err
        assert await site.get(client_of(proxies, "other"), forwarded) == 401

        await serve(site.transport, client_ca_file=texts[0])
        await look_up()
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await site.get(client_of(proxies), forwarded)


async def test_a_ca_file_takes_the_place_of_all_that_the_cluster_says(tmp_path):
    users, proxies, others = trustme.CA(), trustme.CA(), trustme.CA()
    async with port(tmp_path, None, proxies, allowed_names=("aggregator",)) as site:
        await serve(
            site.transport,
            client_ca_file=users.cert_pem.bytes().decode().strip(),
            requestheader_client_ca_file=others.cert_pem.bytes().decode(),
            requestheader_allowed_names="[]",
        )
        await site.serving._look_up()
        authorities = site.serving.tls.authorities
        assert authorities.proxies == proxies.cert_pem.bytes()
        assert authorities.users.strip() == users.cert_pem.bytes().strip()
        assert site.serving._front_proxy.allowed_names == ("aggregator",)


async def test_headers_that_cannot_be_read_stop_a_strict_start():
    async with cluster() as c:
        transport = InProcessTransport(c.server)
        await serve(transport, requestheader_username_headers="X-Remote-User")
        strict = ServingOptions(authentication_tolerate_lookup_failure=False)
        serving = SecureServing(strict, transport, transport, VirtualClock())
        with pytest.raises(ConfigError, match="requestheader-username-headers: "):
            await serving.start()


# -- handshakes -----------------------------------------------------------------------------------


def handshake(server, client, session=None):
    """Connect in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, session=session)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    with pytest.raises(ssl.SSLWantReadError):
        near.read(1)
    return near, far


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_resumed_session_has_the_ca_of_its_first_handshake(tmp_path, version):
    users, proxies = trustme.CA(), trustme.CA()
    tls = ServerTls(ServingOptions(), VirtualClock())
    tls.set_cluster_users(users.cert_pem.bytes())
    tls.set_cluster_proxies(proxies.cert_pem.bytes())
    context, client = tls.context(), client_of(proxies, version=version)
    near, far = handshake(context, client)
    only_proxies = Authorities(proxies=proxies.cert_pem.bytes())
    near_again, far_again = handshake(context, client, near.session)
    assert near_again.session_reused
    assert context.verified_by(far_again) == Authorities(), "nothing was asked before"
    assert context.verified_by(far) == only_proxies
    assert context.verified_by(far_again) == only_proxies


async def test_intermediate_certificates_lead_to_the_same_root(tmp_path):
    users, proxies = trustme.CA(), trustme.CA()
    tls = ServerTls(ServingOptions(), VirtualClock())
    tls.set_cluster_users(users.cert_pem.bytes() + trustme.CA().cert_pem.bytes())
    tls.set_cluster_proxies(proxies.cert_pem.bytes())
    for root, index in ((users, 0), (proxies, 1)):
        _, far = handshake(tls.context(), client_of(root.create_child_ca()))
        found = tls.context().verified_by(far)
        assert [bool(one) for one in found] == [index == 0, index == 1]


async def test_cas_of_the_same_name_are_told_apart_by_their_keys():
    names: dict[str, Any] = {"organization_name": "kubernetes", "organization_unit_name": "ca"}
    users, proxies = trustme.CA(**names), trustme.CA(**names)
    tls = ServerTls(ServingOptions(), VirtualClock())
    tls.set_cluster_users(users.cert_pem.bytes())
    tls.set_cluster_proxies(proxies.cert_pem.bytes())
    for authority, expected in ((users, [True, False]), (proxies, [False, True])):
        _, far = handshake(tls.context(), client_of(authority))
        assert [bool(one) for one in tls.context().verified_by(far)] == expected


async def test_a_connection_without_a_certificate_has_no_ca():
    tls = ServerTls(ServingOptions(), VirtualClock())
    tls.set_cluster_proxies(trustme.CA().cert_pem.bytes())
    _, far = handshake(tls.context(), client_of())
    assert tls.context().verified_by(far) == Authorities()


def test_the_public_method_is_used_where_there_is_one():
    from ksched.web.server_context import _verified_chain

    assert _verified_chain(SimpleNamespace(get_verified_chain=lambda: [b"a", b"b"])) == [b"a", b"b"]
