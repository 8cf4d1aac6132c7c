"""Credentials for the API server: a token or certificate that may change at runtime."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ksched.clock import Clock
from ksched.configuration.regular_files import read_regular
from ksched.errors import Unavailable
from ksched.transport import NOT_SENT

log = logging.getLogger(__name__)

TOKEN_FILE_PERIOD = 60.0


@dataclass(frozen=True, slots=True)
class Secret:
    """One credential; never shown in a log or traceback."""

    authorization: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)


ANONYMOUS = Secret()


class SecretSource(Protocol):
    """A source of the credential."""

    async def get(self) -> Secret:
        """Return the current credential. Raises ``Unavailable`` if there is none."""
        ...

    async def renew(self, rejected: Secret) -> Secret:
        """Return the credential to use after a 401 response to ``rejected``."""
        ...


class FixedSecret:
    """A credential from the configuration."""

    def __init__(self, secret: Secret = ANONYMOUS) -> None:
        self._secret = secret

    async def get(self) -> Secret:
        return self._secret

    async def renew(self, rejected: Secret) -> Secret:
        return self._secret


class TokenFile:
    """A bearer token in a file that another process refreshes (a kubelet, a sidecar).

    Read again every minute and after a 401. While the file cannot be read, the last token stays in
    use, as in client-go.
    """

    def __init__(self, path: Path, clock: Clock, *, period: float = TOKEN_FILE_PERIOD) -> None:
        self._path = path
        self._clock = clock
        self._period = period
        self._secret: Secret | None = None
        self._read_at = 0.0

    async def get(self) -> Secret:
        now = self._clock.now()
        if self._secret is not None and now - self._read_at < self._period:
            return self._secret
        return self._read(now)

    async def renew(self, rejected: Secret) -> Secret:
        return self._read(self._clock.now())

    def _read(self, now: float) -> Secret:
        try:
            token = read_regular(self._path).decode().strip()
            problem = "" if token else "the file is empty"
        except (OSError, UnicodeDecodeError) as error:
            token, problem = "", str(error)
        if not problem:
            self._secret, self._read_at = bearer(token), now
        elif self._secret is None:
            raise Unavailable(0, NOT_SENT, f"token file {self._path}: {problem}")
        else:
            log.warning(
                "token file cannot be read",
                extra={"path": str(self._path), "err": problem},
            )
        return self._secret


def bearer(token: str) -> Secret:
    """A bearer token, rejected if it could inject anything else into the header."""
    if not (token.isascii() and token.isprintable()):
        raise Unavailable(0, NOT_SENT, "bearer token: contains characters that no header may hold")
    return Secret(authorization=f"Bearer {token}")
