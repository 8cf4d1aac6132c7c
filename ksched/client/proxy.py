"""The HTTP proxy between the client and the API server, if any."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from ksched.redaction import redact_text


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str:
    """Return the proxy set by HTTPS_PROXY, HTTP_PROXY and NO_PROXY, or an empty string.

    As Go reads them: either case, no proxy for this machine, NO_PROXY holds names (which match
    their subdomains), addresses, address ranges and ``*``, each with an optional port. Raises
    ``ValueError`` if it is none that can be used.
    """
    url = urlsplit(server)
    name = "HTTPS_PROXY" if url.scheme == "https" else "HTTP_PROXY"
    proxy = environ.get(name) or environ.get(name.lower(), "")
    host = url.hostname or ""
    port = url.port or (443 if url.scheme == "https" else 80)
    if not proxy or host == "localhost" or _is_loopback(host):
        return ""
    exceptions = environ.get("NO_PROXY") or environ.get("no_proxy", "")
    if any(_matches(entry.strip().lower(), host, port) for entry in exceptions.split(",")):
        return ""
    try:
        return checked_proxy(proxy if "://" in proxy else f"http://{proxy}")
    except ValueError as problem:
        raise ValueError(f"{name}: {problem}") from None


def checked_proxy(proxy: str) -> str:
    """Return the URL of a proxy, or raise ``ValueError``: at start, not with every request."""
    try:
        url = urlsplit(proxy)
        is_valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(f"got {redact_text(proxy)!r}, wanted an http or https URL")
    return proxy


def _matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    name, separator, entry_port = entry.rpartition(":")
    if separator and entry_port.isdecimal() and (name.count(":") == 0 or name.endswith("]")):
        if int(entry_port) != port:
            return False
        entry = name.strip("[]")
    if not entry:
        return False
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass
    entry = entry.removeprefix("*")
    if entry.startswith("."):
        return host.endswith(entry)
    return host == entry or host.endswith(f".{entry}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
