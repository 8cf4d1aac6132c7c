"""A TLS context that tells users and proxies apart by the CA of their certificates.

One handshake verifies a certificate against both CAs together. Whose it is, the root at the end of
the verified chain decides: a proxy's certificate is no user, and a user's certificate no proxy,
unless both CAs have that root.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ksched.web.named_certificates import find

_REMEMBERED: Final = 1024
_ENCODING_DER: Final = 2
_HANDSHAKE: Final = 22
_BLOCK: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class Authorities(NamedTuple):
    """The CAs of users and of proxies, as PEM; empty where there is none."""

    users: bytes = b""
    proxies: bytes = b""


class ServerContext(ssl.SSLContext):
    """A context with the CAs of its connections' client certificates.

    One of several certificates shows those of the others, by the name that a client asks for.
    """

    named: Mapping[str, ServerContext] = MappingProxyType({})
    authorities = Authorities()
    _by_signer: Mapping[bytes, ServerContext] = MappingProxyType({})
    _roots_of_users: frozenset[bytes] = frozenset()
    _roots_of_proxies: frozenset[bytes] = frozenset()

    def trust(self, authorities: Authorities) -> None:
        """Verify client certificates from now on; raises ``ssl.SSLError`` or ``ValueError``."""
        for one in authorities:
            if one:
                self.load_verify_locations(cadata=one.decode())
                self.verify_mode = ssl.CERT_OPTIONAL
        self.authorities = authorities
        self._roots_of_users = _certificates(authorities.users)
        self._roots_of_proxies = _certificates(authorities.proxies)
        self._seen: dict[bytes, Authorities] = {}

    def tell_apart(self, make: Callable[[], ServerContext]) -> None:
        """Try every CA for client certificates, also where several have one name.

        ``make`` gives a context with this one's certificate and no CA. Nothing is done, and nothing
        costs anything, unless there are such CAs.
        """
        # Each certificate is here once; upper and lower case are one to OpenSSL.
        names = [str(one["subject"]).lower() for one in self.get_ca_certs()]
        if len(set(names)) == len(names):
            return
        # What reads certificates is not loaded where names differ, which is the rule.
        from ksched.web.same_named_authorities import (
            CERTIFICATE,
            others_of_the_name,
            same_named,
            signer,
        )

        every = sorted(self._roots_of_users | self._roots_of_proxies)
        ambiguous = same_named(every)
        if not ambiguous:
            return

        def look(
            connection: Any, direction: str, version: int, content: int, kind: int, data: bytes
        ) -> None:
            if direction == "read" and content == _HANDSHAKE and kind == CERTIFICATE:
                found = signer(data, version, ambiguous)
                if found is not None:
                    connection.context = self._by_signer[found]

        by_signer = {}
        for one in ambiguous:
            hidden = others_of_the_name(one, every)
            by_signer[one] = self._without(hidden, make())
        self._by_signer = by_signer
        # Private, but the only look at a certificate before it is verified.
        self._msg_callback = look

    def _without(self, hidden: set[bytes], context: ServerContext) -> ServerContext:
        """Let a context of the same certificate verify for this one, by the CAs not hidden."""
        trusted = (self._roots_of_users | self._roots_of_proxies) - hidden
        context.load_verify_locations(cadata=b"".join(sorted(trusted)))
        context.verify_mode = self.verify_mode
        context.authorities = self.authorities
        context._roots_of_users = self._roots_of_users
        context._roots_of_proxies = self._roots_of_proxies
        # Of a resumed session there is nothing to look at: it stays with the first context.
        context._seen = self._seen
        return context

    def serve_names(self, named: Mapping[str, ServerContext]) -> None:
        """Serve the contexts of ``named``, this one for all other names."""

        def choose(ssl_object: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            if name:
                ssl_object.context = find(named, name) or self

        for context in (self, *named.values()):
            context.sni_callback = choose
        self.named = named

    def verified_by(self, ssl_object: ssl.SSLObject) -> Authorities:
        """Return those of the CAs that a connection's certificate has; the others are empty."""
        certificate = ssl_object.getpeercert(binary_form=True)
        if not certificate:
            return Authorities()
        users, proxies = self.authorities
        if not (users and proxies):
            return self.authorities
        key = hashlib.sha256(certificate).digest()
        chain = _verified_chain(ssl_object)
        if not chain:
            # A resumed session has none, but this context has verified its certificate before.
            return self._seen.get(key, Authorities())
        root = chain[-1]
        found = Authorities(
            users if root in self._roots_of_users else b"",
            proxies if root in self._roots_of_proxies else b"",
        )
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[key] = found
        return found


def _certificates(authorities: bytes) -> frozenset[bytes]:
    """Return certificates as DER."""
    blocks = _BLOCK.findall(authorities)
    return frozenset(ssl.PEM_cert_to_DER_cert(block.decode()) for block in blocks)


def _verified_chain(ssl_object: Any) -> list[bytes]:
    """Return the certificates up to the root, as DER."""
    if hasattr(ssl_object, "get_verified_chain"):  # since Python 3.13
        return ssl_object.get_verified_chain() or []
    chain = ssl_object._sslobj.get_verified_chain() or []
    return [certificate.public_bytes(_ENCODING_DER) for certificate in chain]
