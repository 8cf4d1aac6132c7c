"""What commands that talk to a running scheduler have in common: its address, and one request."""

from __future__ import annotations

import argparse
import ssl
import urllib.error
import urllib.request
from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

from ksched.errors import ConfigError, KschedError

DEFAULT_SERVER = "https://127.0.0.1:10259"
MAX_BYTES = 64 * 2**20

ADDRESS_HELP = """\
A scheduler started with --insecure-loopback is reached with --server http://127.0.0.1:10259; others
want a token. A certificate that a scheduler made itself cannot be verified: use
--insecure-skip-tls-verify, through kubectl port-forward, which is encrypted as far as the node.
"""


def add_server_arguments(parser: argparse.ArgumentParser, right: str) -> None:
    """Add address and credentials; ``right`` is what the user of the token must be allowed."""
    add = parser.add_argument
    add(
        "--server",
        metavar="URL",
        default=DEFAULT_SERVER,
        help="where the scheduler serves its endpoints (default %(default)s)",
    )
    add("--certificate-authority", metavar="FILE", help="verifies the certificate of an https URL")
    add(
        "--insecure-skip-tls-verify",
        action="store_true",
        help="accept any certificate; whoever answers there gets the token",
    )
    add("--token-file", metavar="FILE", help=f"bearer token of a user who may {right}")


def fetch(
    arguments: argparse.Namespace,
    path: str,
    *,
    method: str = "GET",
    readable: Collection[int] = (),
    timeout_seconds: float = 10.0,
) -> bytes:
    """The body of a response of success, or of a ``readable`` failure; raises ``KschedError``."""
    server = arguments.server
    if urlsplit(server).scheme not in ("http", "https"):
        raise ConfigError([f"--server: got {server!r}, wanted a URL like {DEFAULT_SERVER}"])
    # Without the proxies of the environment: the default is this machine.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_tls(arguments))
    )
    headers = _credentials(arguments.token_file)
    try:
        request = urllib.request.Request(server.rstrip("/") + path, headers=headers, method=method)
        with opener.open(request, timeout=timeout_seconds) as response:
            body: bytes = response.read(MAX_BYTES)
            return body
    except urllib.error.HTTPError as problem:
        if problem.code in readable:
            return problem.read(MAX_BYTES)
        text = problem.read(1000).decode(errors="replace").strip()
        raise KschedError(f"{server}: {text or problem}") from None
    except OSError as problem:
        reason = getattr(problem, "reason", problem)
        raise KschedError(f"{server}: {reason}; {_advice(reason)}") from None


def _advice(reason: object) -> str:
    """What to do about a request that failed."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return "give --certificate-authority, or for its own one --insecure-skip-tls-verify"
    if isinstance(reason, ssl.SSLError):
        return "with --insecure-loopback it is reached with --server http://HOST:PORT"
    port_forward = "kubectl -n kube-system port-forward deployment/ksched 10259"
    return f"is it a ksched? In a cluster: {port_forward}"


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext:
    authority = arguments.certificate_authority
    if arguments.insecure_skip_tls_verify:
        if authority:
            flags = "--certificate-authority, --insecure-skip-tls-verify"
            raise ConfigError([f"{flags}: give one of them"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    try:
        return ssl.create_default_context(cafile=authority)
    except OSError as problem:
        raise ConfigError([f"--certificate-authority {authority}: {problem}"]) from None


def _credentials(token_file: str | None) -> dict[str, str]:
    if token_file is None:
        return {}
    try:
        token = Path(token_file).read_text().strip()
    except OSError as problem:
        raise ConfigError([f"--token-file: {problem}"]) from None
    return {"Authorization": f"Bearer {token}"}
