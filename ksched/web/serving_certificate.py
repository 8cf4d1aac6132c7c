"""The certificate of the scheduler's port: from files, or self-signed as kube-scheduler's."""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from ksched.clock import Clock
from ksched.configuration.regular_files import read_regular
from ksched.configuration.serving_flags import ServingOptions
from ksched.errors import ConfigError

PAIR_NAME: Final = "kube-scheduler"
VALID_DAYS: Final = 365
RENEW_DAYS: Final = 300
_DAY_SECONDS: Final = 86_400.0


class ServingCertificate:
    """Certificate chain and key as PEM, read again with every call of ``read``.

    From --tls-cert-file and --tls-private-key-file; else from --cert-dir, where a missing pair is
    generated; else generated in memory, and again before it expires.
    """

    def __init__(self, options: ServingOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._generated = b""
        self._renew_at = 0.0
        self._files = self._choose_files()

    @property
    def origin(self) -> str:
        """Where it comes from, for messages."""
        if self._files is None:
            return "self-signed certificate"
        flag = "--tls-cert-file" if self._options.tls_cert_file else "--cert-dir"
        return f"{flag}: cannot use {self._files[0]} and {self._files[1]}"

    def read(self) -> bytes:
        """Return chain and key; ``OSError`` if a file cannot be read."""
        if self._files is not None:
            certificate, key = self._files
            return read_regular(certificate) + b"\n" + read_regular(key)
        now = self._clock.wall()
        if now >= self._renew_at:
            self._generated = b"".join(self_signed(self._options.bind_address, now))
            self._renew_at = now + RENEW_DAYS * _DAY_SECONDS
        return self._generated

    def _choose_files(self) -> tuple[Path, Path] | None:
        options = self._options
        if options.tls_cert_file:
            return Path(options.tls_cert_file), Path(options.tls_private_key_file)
        if not options.cert_dir:
            return None
        folder = Path(options.cert_dir)
        certificate, key = folder / f"{PAIR_NAME}.crt", folder / f"{PAIR_NAME}.key"
        if not (certificate.exists() and key.exists()):
            pair = self_signed(options.bind_address, self._clock.wall())
            try:
                folder.mkdir(parents=True, exist_ok=True)
                _write(certificate, pair[0], 0o644)
                _write(key, pair[1], 0o600)
            except OSError as error:
                problem = f"cannot write {error.filename}: {error.strerror}"
                raise ConfigError([f"--cert-dir: {problem}"]) from error
        return certificate, key


def self_signed(address: str, now: float) -> tuple[bytes, bytes]:
    """Generate a certificate for localhost and ``address``, valid for a year, and its key."""
    # Takes a tenth of a second to import, which only this case needs.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    # A signature of this kind costs a tenth of RSA's, and the event loop makes one per connection.
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"localhost@{int(now)}")])
    addresses = {ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address(address)}
    names = [
        x509.DNSName("localhost"),
        *(x509.IPAddress(one) for one in sorted(addresses, key=str) if not one.is_unspecified),
    ]
    # A reader's clock may be behind.
    start = datetime.fromtimestamp(int(now), UTC) - timedelta(hours=1)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.OID_SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
