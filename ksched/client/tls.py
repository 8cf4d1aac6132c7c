"""TLS contexts that are rebuilt when their files change, and the sessions they resume."""

from __future__ import annotations

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ksched.client.authentication import Secret
from ksched.configuration.regular_files import read_regular
from ksched.errors import Unavailable
from ksched.transport import NOT_SENT


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The TLS settings of a kubeconfig; files may be replaced at runtime, inline data cannot."""

    ca_file: Path | None = None
    ca_data: str = ""
    certificate_file: Path | None = None
    key_file: Path | None = None
    certificate_data: str = field(default="", repr=False)
    key_data: str = field(default="", repr=False)
    server_name: str = ""
    insecure: bool = False

    def files(self) -> list[Path]:
        return [path for path in (self.ca_file, self.certificate_file, self.key_file) if path]


class TlsContexts:
    """Builds a context, and a new one when a file or the credential's certificate changed."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None
        self._made_of: object = None

    def context(self, secret: Secret) -> ssl.SSLContext:
        """Return the context for new connections; the same object while nothing changed.

        With a half-written or missing file the last good context stays in use; without one it
        raises ``Unavailable``.
        """
        made_of = (_signature(self._settings.files()), secret.certificate, secret.key)
        if self._context is None or made_of != self._made_of:
            try:
                self._context = build_context(self._settings, secret)
            except (OSError, ssl.SSLError, ValueError) as error:
                if self._context is None:
                    raise Unavailable(0, NOT_SENT, f"tls: {error}") from error
                return self._context
            self._made_of = made_of
        return self._context


class _ResumingObject(ssl.SSLObject):
    """A connection whose handshake resumes the last session with the server, if there is one.

    Certificates are neither sent nor verified nor used to sign then. A server that does not know
    the session makes a new one.
    """

    sessions: ClassVar[dict[str | None, ssl.SSLSession]]
    """By name of the server."""
    _began = False

    def do_handshake(self) -> None:
        if not self._began:
            self._began = True
            known = self.sessions.get(self.server_hostname)
            if known is not None:
                self.session = known
        super().do_handshake()


def keep_session(connection: ssl.SSLObject | None) -> None:
    """Let further connections resume this one's session, which is known after the first answer.

    One that was resumed itself is not copied again, which would cost as much as it saves.
    """
    if isinstance(connection, _ResumingObject) and not connection.session_reused:
        session = connection.session
        if session is not None and session.has_ticket:
            connection.sessions[connection.server_hostname] = session


def build_context(settings: TlsSettings, secret: Secret) -> ssl.SSLContext:
    """Build a client context from the settings and, if any, the credential's certificate."""
    context = ssl.create_default_context(cafile=settings.ca_file, cadata=settings.ca_data or None)
    # Cluster CAs are often created without key identifiers; Go does not require them either.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # Another identity has another context, and so a class and sessions of its own.
    context.sslobject_class = type("Resuming", (_ResumingObject,), {"sessions": {}})
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if secret.certificate:
        _load_pair(context, secret.certificate, secret.key)
    elif settings.certificate_file or settings.certificate_data:
        certificate = settings.certificate_data or _text(settings.certificate_file)
        _load_pair(context, certificate, settings.key_data or _text(settings.key_file))
    return context


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate and its key from memory, which ssl can do only through a file."""
    with tempfile.NamedTemporaryFile("w", prefix="ksched-", suffix=".pem") as file:
        file.write(f"{certificate}\n{key}\n")
        file.flush()
        context.load_cert_chain(file.name)


def _text(path: Path | None) -> str:
    return read_regular(path).decode() if path else ""


def _signature(files: list[Path]) -> tuple[tuple[int, int, int] | None, ...]:
    """Return a value that changes whenever one of the files does."""
    return tuple(_stat(path) for path in files)


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
