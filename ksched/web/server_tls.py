"""TLS of the scheduler's port: the contexts, replaced when a certificate or CA changes."""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from ksched.clock import Clock
from ksched.configuration.regular_files import read_regular
from ksched.configuration.serving_flags import CIPHER_SUITES, TLS13, NamedPair, ServingOptions
from ksched.errors import ConfigError, KschedError
from ksched.web.named_certificates import by_name, read_pair
from ksched.web.server_context import Authorities, ServerContext
from ksched.web.serving_certificate import ServingCertificate

log = logging.getLogger(__name__)

RELOAD_SECONDS: Final = 5.0
CONFIG_MAP: Final = "configmap kube-system/extension-apiserver-authentication"


class _Unusable(KschedError):
    """A certificate, key or CA cannot be read or used."""


class _Material(NamedTuple):
    """What contexts are made of, as PEM."""

    chain: bytes
    named: tuple[bytes, ...]
    authorities: Authorities


class ServerTls:
    """The context for new connections; open ones keep theirs.

    A certificate or CA file that cannot be used leaves the last good context in place. Raises
    ``ConfigError`` if there is no first one.
    """

    def __init__(self, options: ServingOptions, clock: Clock) -> None:
        self._options = options
        self._certificate = ServingCertificate(options, clock)
        self._of_cluster = Authorities()
        self._made_of: _Material | None = None
        self._last_problem = ""
        problems = []
        for name in options.tls_cipher_suites:
            try:
                _set_ciphers(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), (name,))
            except ssl.SSLError:
                problems.append(f"--tls-cipher-suites: {name}: this OpenSSL does not have it")
        if problems:
            raise ConfigError(problems)
        try:
            self._context = self._build(self._read())
        except _Unusable as error:
            raise ConfigError([str(error)]) from error

    @property
    def authorities(self) -> Authorities:
        """The CAs that verify client certificates now."""
        return self._context.authorities

    def context(self, address: str = "") -> ServerContext:
        """Return the context for a client that connected to ``address``.

        It has that address's certificate, if there is one, for clients that ask for no name.
        """
        return self._context.named.get(address, self._context)

    def set_cluster_users(self, authorities: bytes) -> None:
        """Use the cluster's CA of users, unless --client-ca-file is given."""
        self._set_of_cluster(self._of_cluster._replace(users=authorities))

    def set_cluster_proxies(self, authorities: bytes) -> None:
        """Use the cluster's CA of proxies, unless --requestheader-client-ca-file is given."""
        self._set_of_cluster(self._of_cluster._replace(proxies=authorities))

    def _set_of_cluster(self, authorities: Authorities) -> None:
        try:
            self._trust(ServerContext(ssl.PROTOCOL_TLS_SERVER), authorities)
        except _Unusable as error:
            self._complain(error)
            return
        self._of_cluster = authorities
        self.reload()

    def reload(self) -> None:
        """Read the files again and replace the context if they changed."""
        try:
            material = self._read()
            if material == self._made_of:
                self._last_problem = ""
                return
            self._context = self._build(material)
        except _Unusable as error:
            self._complain(error)
        else:
            self._last_problem = ""
            log.info("TLS certificates reloaded")

    def _complain(self, error: _Unusable) -> None:
        problem = str(error)
        if problem != self._last_problem:
            log.error("TLS certificates cannot be used, the last ones stay", extra={"err": problem})
        self._last_problem = problem

    def _read(self) -> _Material:
        try:
            chain = self._certificate.read()
        except OSError as error:
            raise _Unusable(f"{self._certificate.origin}: {error}") from error
        named = []
        for pair in self._options.tls_sni_cert_keys:
            try:
                named.append(read_pair(pair))
            except OSError as error:
                raise _Unusable(f"{_origin(pair)}: {error}") from error
        return _Material(chain, tuple(named), self._read_authorities())

    def _read_authorities(self) -> Authorities:
        found = []
        for origin, path, of_cluster in zip(
            self._origins, self._files, self._of_cluster, strict=True
        ):
            try:
                found.append(read_regular(path) if path else of_cluster)
            except OSError as error:
                raise _Unusable(f"{origin}: {error}") from error
        return Authorities(*found)

    @property
    def _files(self) -> tuple[str, str]:
        """The files of the CAs, in the order of ``Authorities``; empty for the cluster's."""
        return self._options.client_ca_file, self._options.requestheader_client_ca_file

    @property
    def _origins(self) -> list[str]:
        """Where the CAs come from, for messages."""
        keys = "client-ca-file", "requestheader-client-ca-file"
        return [
            f"--{key}: cannot use {path}" if path else f"{CONFIG_MAP}: {key}"
            for key, path in zip(keys, self._files, strict=True)
        ]

    def _build(self, material: _Material) -> ServerContext:
        context = self._build_one(material.chain, self._certificate.origin, material.authorities)
        pairs = self._options.tls_sni_cert_keys
        named = [
            self._build_one(chain, _origin(pair), material.authorities)
            for pair, chain in zip(pairs, material.named, strict=True)
        ]
        try:
            context.serve_names(by_name(pairs, material.named, named))
        except ValueError as error:
            raise _Unusable(f"--tls-sni-cert-key: {error}") from error
        self._made_of = material
        return context

    def _build_one(self, chain: bytes, origin: str, authorities: Authorities) -> ServerContext:
        context = self._with_chain(chain, origin)
        self._trust(context, authorities)
        context.tell_apart(lambda: self._with_chain(chain, origin))
        return context

    def _with_chain(self, chain: bytes, origin: str) -> ServerContext:
        context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        is_13 = self._options.tls_min_version == TLS13
        context.minimum_version = ssl.TLSVersion.TLSv1_3 if is_13 else ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        if self._options.tls_cipher_suites:
            _set_ciphers(context, self._options.tls_cipher_suites)
        try:
            with _as_file(chain) as path:
                # Without a password OpenSSL would ask for one on the terminal.
                context.load_cert_chain(path, password="")
        except (OSError, ValueError) as error:
            raise _Unusable(f"{origin}: {error}") from error
        return context

    def _trust(self, context: ServerContext, authorities: Authorities) -> None:
        for origin, one in zip(self._origins, authorities, strict=True):
            try:
                ServerContext(ssl.PROTOCOL_TLS_SERVER).trust(Authorities(one))
            except (ssl.SSLError, ValueError) as error:
                raise _Unusable(f"{origin}: {error}") from error
        context.trust(authorities)


def _origin(pair: NamedPair) -> str:
    """Where the certificate of a name comes from, for messages."""
    return f"--tls-sni-cert-key: cannot use {pair.certificate} and {pair.key}"


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    chosen = [CIPHER_SUITES[name] for name in names if CIPHER_SUITES[name]]
    if chosen:
        context.set_ciphers(":".join(chosen))


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Give a key a path, which ssl requires, in memory where that is possible."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ksched-key")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="ksched-", suffix=".pem") as file:
        file.write(content)
        file.flush()
        yield file.name
