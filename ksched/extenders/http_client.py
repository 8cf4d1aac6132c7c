"""HTTP and HTTPS to extenders."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit

from ksched.client.authentication import ANONYMOUS, FixedSecret, Secret
from ksched.client.http_transport import ClientConfig, HttpTransport
from ksched.client.proxy import proxy_from_environment
from ksched.client.tls import TlsSettings, build_context
from ksched.clock import Clock
from ksched.configuration.extenders import Extender, ExtenderTLSConfig
from ksched.errors import ExtenderError, Unavailable
from ksched.redaction import redact_text, without_credentials
from ksched.transport import Guard, Transport

IDLE_SECONDS = 4.0
"""How long a connection is reused: web servers commonly close theirs after five seconds."""


class HttpExtenderClient:
    """Posts JSON to one extender (``ksched.extenders.extender.ExtenderClient``).

    Connections are opened on demand; after ``aclose`` the client may be used again. ``guard`` wraps
    the transport of ``order`` requests, which only a leader may send. Raises ``ValueError`` for
    settings that can never work.
    """

    def __init__(
        self,
        config: Extender,
        clock: Clock,
        guard: Guard = lambda transport: transport,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        url = urlsplit(config.url_prefix)
        if url.scheme not in ("http", "https") or not url.hostname:
            got = redact_text(config.url_prefix)
            raise ValueError(f"urlPrefix: must be an http or https URL, got {got!r}")
        self.name = without_credentials(config.url_prefix)
        self._prefix = config.url_prefix.rstrip("/")
        self._timeout = config.http_timeout_seconds
        self._clock = clock
        self._guard = guard
        server = f"{url.scheme}://{_address(url)}"
        tls = tls_settings(config)
        if url.scheme == "https":
            _check(tls)
        self._client_config = ClientConfig(
            server=server,
            tls=tls,
            credentials=FixedSecret(_secret(url)),
            proxy=proxy_from_environment(server, environ),
        )
        self._transport: HttpTransport | None = None

    async def send(self, verb: str, body: bytes) -> bytes:
        return await self._post(self._open(), verb, body)

    async def order(self, verb: str, body: bytes) -> bytes:
        return await self._post(self._guard(self._open()), verb, body)

    async def aclose(self) -> None:
        if self._transport is not None:
            transport, self._transport = self._transport, None
            await transport.aclose()

    def _open(self) -> HttpTransport:
        if self._transport is None:
            self._transport = HttpTransport(
                self._client_config, self._clock, idle_seconds=IDLE_SECONDS
            )
        return self._transport

    async def _post(self, transport: Transport, verb: str, body: bytes) -> bytes:
        address = f"{self._prefix}/{verb}"
        url = urlsplit(address)
        what = f"failed {redact_text(verb)} with extender at URL {without_credentials(address)}"
        try:
            answer = await transport.request("POST", _path(url), body, timeout=self._timeout)
        except Unavailable as problem:
            raise ExtenderError(f"{what}: {problem.message.partition(': ')[2]}") from problem
        if answer.status != 200:
            raise ExtenderError(f"{what}, code {answer.status}")
        return answer.body


def tls_settings(config: Extender) -> TlsSettings:
    """Translate an extender's TLS settings; ``enableHTTPS`` without a CA verifies nothing.

    kube-scheduler: makeTransport.
    """
    tls = config.tls_config or ExtenderTLSConfig()
    has_ca = bool(tls.ca_data or tls.ca_file)
    return TlsSettings(
        ca_file=_path_unless(tls.ca_data, tls.ca_file),
        ca_data=_text(tls.ca_data),
        certificate_file=_path_unless(tls.cert_data, tls.cert_file),
        certificate_data=_text(tls.cert_data),
        key_file=_path_unless(tls.key_data, tls.key_file),
        key_data=_text(tls.key_data),
        server_name=tls.server_name,
        insecure=tls.insecure or (config.enable_https and not has_ca),
    )


def _check(tls: TlsSettings) -> None:
    """Check now what would fail with every pod."""
    if tls.insecure and (tls.ca_file or tls.ca_data):
        raise ValueError("tlsConfig: a CA may not be given with insecure")
    if bool(tls.certificate_file or tls.certificate_data) != bool(tls.key_file or tls.key_data):
        raise ValueError("tlsConfig: a client certificate and its key belong together")
    try:
        for file in tls.files():
            # ssl does not report which one it cannot read.
            file.read_bytes()
        build_context(tls, ANONYMOUS)
    except (OSError, ssl.SSLError) as problem:
        raise ValueError(f"tlsConfig: {problem}") from problem


def _path_unless(data: str, file: str) -> Path | None:
    return Path(file) if file and not data else None


def _text(data: str) -> str:
    return base64.b64decode(data).decode()


def _address(url: SplitResult) -> str:
    """Host and port without user and password."""
    return url.netloc.rpartition("@")[2]


def _secret(url: SplitResult) -> Secret:
    """User and password in a URL are sent as Go sends them."""
    if url.username is None:
        return ANONYMOUS
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return Secret(authorization=f"Basic {base64.b64encode(pair.encode()).decode()}")


def _path(url: SplitResult) -> str:
    path = quote(url.path, safe="/%:@!$&'()*+,;=~")
    return f"{path}?{quote(url.query, safe='/%:@!$&()*+,;=~?')}" if url.query else path
