"""Credentials from a helper program (``users[].user.exec`` of a kubeconfig)."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from ksched.client.authentication import Secret, bearer
from ksched.client.exec_metrics import FAILED, NOT_FOUND, SUCCEEDED, ExecMetrics
from ksched.clock import Clock
from ksched.errors import Unavailable
from ksched.redaction import redact_text
from ksched.transport import NOT_SENT

log = logging.getLogger(__name__)

EXEC_TIMEOUT = 60.0
# A server that rejects everything must not make us run the program for every request.
_RENEWAL_SECONDS = 10.0
_EXPIRY_MARGIN = 60.0
_STDERR_LIMIT = 500
_OUTPUT_LIMIT = 1 << 20
_REAP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ExecSpec:
    """The program and its input. ``cluster`` is passed only if ``provideClusterInfo`` is set."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cluster: Mapping[str, object] | None = None
    install_hint: str = ""


class _ExecStatus(msgspec.Struct, rename="camel", gc=False):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel", gc=False):
    api_version: str
    kind: str
    status: _ExecStatus | None = None


_decode = msgspec.json.Decoder(_ExecCredential).decode


class ExecCredentials:
    """Runs the program, caches its credential until it expires, runs it again after a 401.

    One run serves all concurrent callers. A run that fails raises ``Unavailable``.
    """

    metrics: ExecMetrics | None = None
    """Where runs are counted."""

    def __init__(self, spec: ExecSpec, clock: Clock, *, timeout: float = EXEC_TIMEOUT) -> None:
        self._spec = spec
        self._clock = clock
        self._timeout = timeout
        self._secret: Secret | None = None
        self._expires_at: float | None = None
        self._ran_at = 0.0
        self._lock = asyncio.Lock()

    async def get(self) -> Secret:
        if self._secret is not None and not self._is_expired():
            return self._secret
        async with self._lock:
            if self._secret is None or self._is_expired():
                await self._run()
            assert self._secret is not None
            return self._secret

    async def renew(self, rejected: Secret) -> Secret:
        async with self._lock:
            too_soon = self._clock.now() - self._ran_at < _RENEWAL_SECONDS
            if self._secret is None or (self._secret == rejected and not too_soon):
                await self._run()
            assert self._secret is not None
            return self._secret

    def _is_expired(self) -> bool:
        return self._expires_at is not None and self._clock.wall() >= self._expires_at

    async def _run(self) -> None:
        answer = await self._output()
        try:
            credential = _decode(answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # Not the output itself: it may contain the token.
            raise self._failure(f"its output is no ExecCredential: {error}") from None
        if credential.kind != "ExecCredential" or credential.api_version != self._spec.api_version:
            got = f"{credential.kind} of {credential.api_version}"
            raise self._failure(f"got {got}, wanted ExecCredential of {self._spec.api_version}")
        status = credential.status or _ExecStatus()
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._failure("clientCertificateData and clientKeyData come only together")
        if not (status.token or status.client_certificate_data):
            raise self._failure("neither token nor client certificate in its status")
        self._secret = Secret(
            authorization=bearer(status.token.strip()).authorization if status.token else "",
            certificate=status.client_certificate_data,
            key=status.client_key_data,
        )
        if self.metrics is not None:
            self.metrics.renewed(self, status.client_certificate_data)
        self._ran_at = self._clock.now()
        self._expires_at = self._renewal_time(status.expiration_timestamp)

    def _renewal_time(self, expiry: datetime | None) -> float | None:
        """Return a time shortly before the expiry, but not immediate: avoids a busy loop."""
        if expiry is None:
            return None
        now = self._clock.wall()
        life = expiry.timestamp() - now
        return now + max(life - min(_EXPIRY_MARGIN, life * 0.1), 1.0)

    async def _output(self) -> bytes:
        spec = self._spec
        info: dict[str, object] = {"interactive": False}
        if spec.cluster is not None:
            info["cluster"] = spec.cluster
        request = {"apiVersion": spec.api_version, "kind": "ExecCredential", "spec": info}
        env = {
            **os.environ,
            **spec.env,
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode(),
        }
        loop = asyncio.get_running_loop()
        try:
            process, gathered = await loop.subprocess_exec(
                lambda: _Gathered(loop.create_future(), loop.create_future()),
                spec.command,
                *spec.args,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
            )
        except OSError as error:
            self._count(1, NOT_FOUND)
            hint = f"; {spec.install_hint}" if spec.install_hint else ""
            raise self._failure(f"cannot be started: {error.strerror}{hint}") from error
        try:
            async with asyncio.timeout(self._timeout):
                await gathered.ended
        except TimeoutError:
            self._count(-1, FAILED)
            raise self._failure(f"did not finish within {self._timeout:g} s") from None
        finally:
            code = process.get_returncode()
            process.close()
            # Killed, if it still ran; the event loop must not end before it is reaped.
            await asyncio.wait([gathered.exited], timeout=_REAP_SECONDS)
        if len(gathered.output) > _OUTPUT_LIMIT:
            self._count(-1, FAILED)
            raise self._failure(f"its output is longer than {_OUTPUT_LIMIT} bytes")
        self._count(code or 0, FAILED if code else SUCCEEDED)
        if code:
            said = redact_text(gathered.complaint.decode("utf-8", "replace"))
            text = said.strip()[-_STDERR_LIMIT:]
            raise self._failure(f"exit code {code}: {text or 'no message'}")
        log.info("credentials renewed", extra={"command": spec.command})
        return bytes(gathered.output)

    def _count(self, code: int, status: str) -> None:
        if self.metrics is not None:
            self.metrics.called(code, status)

    def _failure(self, problem: str) -> Unavailable:
        return Unavailable(0, NOT_SENT, f"exec credential program {self._spec.command}: {problem}")


class _Gathered(asyncio.SubprocessProtocol):
    """The output of a program: stdout up to a limit, stderr its end.

    ``ended`` is done when there is nothing more to wait for. The program's transport must then be
    closed, which ends the program too; ``exited`` is done when it has.
    """

    def __init__(self, ended: asyncio.Future[None], exited: asyncio.Future[None]) -> None:
        self.output = bytearray()
        self.complaint = b""
        self.ended, self.exited = ended, exited

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.complaint = (self.complaint + data)[-8 * _STDERR_LIMIT :]
        elif len(self.output) <= _OUTPUT_LIMIT:
            self.output += data
        if len(self.output) > _OUTPUT_LIMIT:
            self._end()

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
