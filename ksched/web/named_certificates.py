"""Certificates for the names by which clients call the port.

kube-scheduler: BuildNamedCertificates and getCertificateNames.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from ksched.configuration.regular_files import read_regular
from ksched.configuration.serving_flags import NamedPair

T = TypeVar("T")

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_MAX_SUBDOMAIN: Final = 253


def read_pair(pair: NamedPair) -> bytes:
    """Return chain and key as PEM; ``OSError`` if a file cannot be read."""
    return read_regular(pair.certificate) + b"\n" + read_regular(pair.key)


def by_name(
    pairs: Sequence[NamedPair], chains: Sequence[bytes], served: Sequence[T]
) -> dict[str, T]:
    """Return what is served by name; raises ``ValueError`` for a chain that cannot be read.

    Names that are given come before those of certificates, and earlier pairs before later ones.
    """
    of_certificates: dict[str, T] = {}
    given: dict[str, T] = {}
    for pair, chain, one in zip(pairs, chains, served, strict=True):
        names, found = (pair.names, given) if pair.names else (names_of(chain), of_certificates)
        for name in names:
            found.setdefault(name.lower(), one)
    return {**of_certificates, **given}


def find(named: Mapping[str, T], name: str) -> T | None:
    """Return what is served for a name: it, or with a wildcard for its first label."""
    name = name.lower()
    _, dot, domain = name.partition(".")
    found = named.get(name)
    return found if found is not None else named.get(f"*{dot}{domain}")


def names_of(chain: bytes) -> list[str]:
    """Return the names of the first certificate; no addresses, which no client asks for by name."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(chain)
    fields = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    names = [str(field.value) for field in fields[-1:] if _is_domain(str(field.value))]
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return names
    return [*names, *alternative.value.get_values_for_type(x509.DNSName)]


def _is_domain(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        domain = name.removeprefix("*.")
        is_subdomain = len(domain) <= _MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(domain) is not None
        return name == "*" or is_subdomain
    return False
