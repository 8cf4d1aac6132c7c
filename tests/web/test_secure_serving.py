"""The whole port: HTTPS, reviews by the embedded API server, certificates that rotate."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager

import aiohttp
import anyio
import msgspec
import pytest
import trustme
from yarl import URL

from ksched.apiserver.in_process import InProcessTransport
from ksched.configuration.serving_flags import ServingOptions
from ksched.errors import ConfigError
from ksched.metrics import Metrics
from ksched.testing.harness import cluster
from ksched.testing.virtual_time import VirtualClock
from ksched.web import secure_serving as module
from ksched.web.secure_serving import CA_CONFIG_MAP, SecureServing
from ksched.web.web_server import WebServer

real_time = pytest.mark.real_time
LOOPBACK = "127.0.0.1"
PATHS = (
    *("/", "/metrics", "/configz", "/debug/queue", "/debug/decisions", "/debug/story/a/b"),
    "/debug/groups",
    *("/nowhere", "/healthz/ping", "//healthz", "/healthz/../metrics", "/healthz%2f..%2fmetrics"),
    *("/metrics?x=/healthz", "/%6detrics", "/livez/../configz"),
)


class Port:
    """The port of a cluster's scheduler, and what its API server thinks of tokens and users."""

    def __init__(self, url, session, c, serving):
        self.url, self._session, self.serving = url, session, serving
        self.reviews = c.server.reviews
        self.transport = InProcessTransport(c.server)

    async def get(self, path, token="", ssl_context=False, method="GET"):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = URL(self.url + path, encoded=True)
        async with self._session.request(method, url, headers=headers, ssl=ssl_context) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def port(**options):
    async with cluster() as c, aiohttp.ClientSession() as session, anyio.create_task_group() as t:
        transport = InProcessTransport(c.server)
        serving = SecureServing(ServingOptions(**options), transport, transport, c.clock)
        server = WebServer(c.scheduler, Metrics(), live={}, ready={}, access=serving.access)
        async with server.listening(LOOPBACK, 0, serving.tls.context) as url:
            assert url.startswith("https://")
            yield Port(url, session, c, serving)
        t.cancel_scope.cancel()


@real_time
async def test_strangers_see_health_and_nothing_else():
    async with port() as site:
        for path in ("/healthz", "/livez", "/readyz", "/healthz?verbose"):
            assert (await site.get(path))[0] == 200
        for path in PATHS:
            status, text = await site.get(path)
            assert (path, status) == (path, 401)
            assert msgspec.json.decode(text)["message"] == "Unauthorized"
        assert (await site.get("/metrics", method="HEAD"))[0] == 401
        assert (await site.get("/metrics", method="POST"))[0] == 401


@real_time
async def test_tokens_and_rights_decide():
    async with port() as site:
        site.reviews.invalid_tokens.add("stolen")
        site.reviews.denied_users.add("bob")
        assert (await site.get("/metrics", "stolen"))[0] == 401
        status, text = await site.get("/metrics", "bob")
        assert status == 403
        assert 'User \\"bob\\" cannot get path \\"/metrics\\"' in text
        assert (await site.get("/metrics", "ada"))[0] == 200
        assert (await site.get("/debug/queue", "ada"))[0] == 200
        assert (await site.get("/nowhere", "ada"))[0] == 404
        assert (await site.get("/metrics", "ada", method="POST"))[0] == 405
        assert (await site.get("/debug/flags/v", method="PUT"))[0] == 401
        status, text = await site.get("/debug/flags/v", "bob", method="PUT")
        assert status == 403
        assert 'User \\"bob\\" cannot put path \\"/debug/flags/v\\"' in text


@real_time
async def test_client_certificate_counts_while_its_ca_is_trusted():
    authority = trustme.CA()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    leaf = authority.issue_cert("x@y", common_name="ada", organization_name="readers")
    leaf.configure_cert(client)
    async with port() as site:
        assert (await site.get("/metrics", ssl_context=client))[0] == 401
        site.serving.tls.set_cluster_users(authority.cert_pem.bytes())
        fresh = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        fresh.check_hostname, fresh.verify_mode = False, ssl.CERT_NONE
        leaf.configure_cert(fresh)
        assert (await site.get("/metrics", ssl_context=fresh))[0] == 200
        assert (await site.get("/metrics", ssl_context=False))[0] == 401
        site.serving.tls.set_cluster_users(trustme.CA().cert_pem.bytes())
        status, _ = await site.get("/metrics", ssl_context=fresh)
        assert status == 401, "the open connection was verified by a CA that is gone"


async def serve_ca(transport, text):
    namespace, _, name = CA_CONFIG_MAP.rpartition("/")
    body = {"metadata": {"name": name}, "data": {"client-ca-file": text}}
    answer = await transport.request("POST", namespace, msgspec.json.encode(body))
    if answer.status == 409:
        answer = await transport.request("PUT", CA_CONFIG_MAP, msgspec.json.encode(body))
    assert answer.status in (200, 201)


async def test_ca_is_looked_up_and_looked_up_again(caplog):
    async with cluster() as c, anyio.create_task_group() as tasks:
        transport = InProcessTransport(c.server)
        serving = SecureServing(ServingOptions(), transport, transport, VirtualClock())
        await serving.start()
        tasks.start_soon(serving.keep_current)
        await anyio.sleep(130)
        assert serving.tls.authorities.users == b""
        assert [r.message for r in caplog.records if r.name == module.__name__] == [
            "client CA not found, client certificates known before remain valid"
        ]
        first, second = (trustme.CA().cert_pem.bytes().decode().strip() for _ in range(2))
        for text in (first, second, ""):
            await serve_ca(transport, text)
            await anyio.sleep(65)
            assert serving.tls.authorities.users == text.encode()
        tasks.cancel_scope.cancel()


async def test_start_fails_without_the_ca_if_that_is_wanted():
    async with cluster() as c:
        transport = InProcessTransport(c.server)
        strict = ServingOptions(authentication_tolerate_lookup_failure=False)
        serving = SecureServing(strict, transport, transport, VirtualClock())
        with pytest.raises(ConfigError, match="cannot look up the client CA: 404"):
            await serving.start()
        await serve_ca(transport, trustme.CA().cert_pem.bytes().decode())
        await serving.start()
        assert serving.tls.authorities.users


async def test_nothing_is_looked_up_if_that_is_wanted():
    async with cluster() as c, anyio.create_task_group() as tasks:
        transport = InProcessTransport(c.server)
        options = ServingOptions(
            authentication_skip_lookup=True, authentication_tolerate_lookup_failure=False
        )
        serving = SecureServing(options, transport, transport, VirtualClock())
        await serving.start()
        tasks.start_soon(serving.keep_current)
        await anyio.sleep(200)
        assert not [audit for audit in c.server.requests if audit.path == CA_CONFIG_MAP]
        tasks.cancel_scope.cancel()
