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
want a token, and --certificate-authority unless their certificate is signed by a known authority.
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
    server, authority = arguments.server, arguments.certificate_authority
    if urlsplit(server).scheme not in ("http", "https"):
        raise ConfigError([f"--server: got {server!r}, wanted a URL like {DEFAULT_SERVER}"])
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as problem:
        raise ConfigError([f"--certificate-authority {authority}: {problem}"]) from None
    # Without the proxies of the environment: the default is this machine.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
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
        raise KschedError(
            f"{server}: {reason}; is it a ksched? In a cluster: "
            "kubectl -n kube-system port-forward deployment/ksched 10259"
        ) from None


def _credentials(token_file: str | None) -> dict[str, str]:
    if token_file is None:
        return {}
    try:
        token = Path(token_file).read_text().strip()
    except OSError as problem:
        raise ConfigError([f"--token-file: {problem}"]) from None
    return {"Authorization": f"Bearer {token}"}
