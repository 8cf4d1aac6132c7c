"""CAs that have one name and different keys: which of them has signed a client's certificate.

OpenSSL looks for an issuer by name. Of several it takes the one that the certificate's key
identifier names; without identifiers it takes the first, and does not try the others when the
signature is not by that key. So the certificates that a client sends are looked at before OpenSSL
verifies them, and verified by a context without the other CAs of that name. Nothing is believed
because of this look: a wrong choice could only refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CERTIFICATE: Final = 11
"""The type of the handshake's message with certificates."""

_MAX_CERTIFICATES: Final = 8
_TLS13: Final = 0x0304
_UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion)


def same_named(authorities: Sequence[bytes]) -> list[bytes]:
    """Return those CAs (DER) that have the name of another one and a key of their own."""
    return [one for one in authorities if others_of_the_name(one, authorities)]


def others_of_the_name(authority: bytes, authorities: Sequence[bytes]) -> set[bytes]:
    """Return the CAs with the name of one and another key."""
    own = _name_and_key(authority)
    if own is None:
        return set()
    found = {one: _name_and_key(one) for one in authorities}
    return {
        one
        for one, other in found.items()
        if other is not None and other[0] == own[0] and other[1] != own[1]
    }


def signer(message: bytes, version: int, authorities: Sequence[bytes]) -> bytes | None:
    """Return which CA has signed one of the certificates of a handshake's message."""
    candidates = [(one, x509.load_der_x509_certificate(one)) for one in authorities]
    for content in _certificates(message, version)[:_MAX_CERTIFICATES]:
        try:
            certificate = x509.load_der_x509_certificate(content)
            for one, authority in candidates:
                if certificate.issuer == authority.subject and _has_signed(authority, certificate):
                    return one
        except _UNREADABLE:
            # OpenSSL says what is wrong with it.
            continue
    return None


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, *_UNREADABLE):
        return False
    return True


def _certificates(message: bytes, version: int) -> list[bytes]:
    """Return the certificates (DER) of a message, as far as they are complete.

    A header of four bytes; since TLS 1.3 a context after its length; the length of a list; its
    entries, each a length and a certificate, since TLS 1.3 followed by extensions.
    """
    at = 4
    if version >= _TLS13:
        at += 1 + _number(message, at, 1)
    at += 3
    found = []
    while at + 3 <= len(message):
        length = _number(message, at, 3)
        found.append(message[at + 3 : at + 3 + length])
        at += 3 + length
        if version >= _TLS13:
            at += 2 + _number(message, at, 2)
    return found


def _number(message: bytes, at: int, length: int) -> int:
    return int.from_bytes(message[at : at + length])


def _name_and_key(authority: bytes) -> tuple[str, bytes] | None:
    """Return the name, as far as OpenSSL tells names apart, and the key; None if unreadable."""
    try:
        certificate = x509.load_der_x509_certificate(authority)
        key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        name = " ".join(certificate.subject.rfc4514_string().lower().split())
    except _UNREADABLE:
        return None
    return name, key
