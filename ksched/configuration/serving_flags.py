"""The flags of the scheduler's own port: where it listens, its certificate, and who may read.

Names and defaults are kube-scheduler's (SecureServing, Authentication and Authorization options);
``--insecure-loopback`` is ours.
"""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ksched.configuration.durations import parse_duration
from ksched.configuration.feature_gates import parse_bool
from ksched.configuration.flag_values import DURATION
from ksched.configuration.front_proxy import FrontProxy

T = TypeVar("T")
FlagGroup = argparse._ArgumentGroup

LOOPBACK: Final = "127.0.0.1"
ALWAYS_ALLOW_PATHS: Final = ("/healthz", "/readyz", "/livez")
TLS_VERSIONS: Final = ("VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
TLS13: Final = "VersionTLS13"

# Go's name -> OpenSSL's. Suites of TLS 1.3 cannot be chosen in Go either: they are always on.
CIPHER_SUITES: Final = {
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}

# Flag -> the field of ``FrontProxy`` that it sets.
PROXY_FLAGS: Final = {
    "requestheader_allowed_names": "allowed_names",
    "requestheader_extra_headers_prefix": "extra_prefixes",
    "requestheader_group_headers": "group_headers",
    "requestheader_uid_headers": "uid_headers",
    "requestheader_username_headers": "username_headers",
}
_NEEDING_TLS: Final = (
    *("cert-dir", "tls-cert-file", "tls-private-key-file", "tls-sni-cert-key"),
    *("client-ca-file", "requestheader-client-ca-file"),
)


@dataclass(frozen=True)
class NamedPair:
    """Files of a certificate and its key; without ``names`` for those of the certificate."""

    certificate: str
    key: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = f":{','.join(self.names)}" if self.names else ""
        return f"{self.certificate},{self.key}{names}"


@dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """The port and who may read from it."""

    bind_address: str = "0.0.0.0"
    secure_port: int = 10259
    """0 serves nothing."""
    insecure_loopback: bool = False
    """Plain HTTP for every process of this machine, and for no other."""
    cert_dir: str = ""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_sni_cert_keys: tuple[NamedPair, ...] = ()
    tls_min_version: str = ""
    tls_cipher_suites: tuple[str, ...] = ()
    client_ca_file: str = ""
    requestheader_client_ca_file: str = ""
    front_proxy: FrontProxy = field(default_factory=FrontProxy)
    """Of the proxies of ``requestheader_client_ca_file``."""
    authentication_kubeconfig: str = ""
    authentication_skip_lookup: bool = False
    authentication_tolerate_lookup_failure: bool = True
    authentication_cache_seconds: float = 10.0
    authorization_kubeconfig: str = ""
    authorization_always_allow_paths: tuple[str, ...] = ALWAYS_ALLOW_PATHS
    authorized_cache_seconds: float = 10.0
    unauthorized_cache_seconds: float = 10.0


def serving_options(flags: argparse.Namespace, problems: list[str]) -> ServingOptions:
    """Resolve parsed flags; what is wrong is appended to ``problems``."""
    if bool(flags.tls_cert_file) != bool(flags.tls_private_key_file):
        problems.append("--tls-cert-file and --tls-private-key-file: give both or none")
    is_insecure = bool(flags.insecure_loopback)
    address = flags.bind_address or (LOOPBACK if is_insecure else "0.0.0.0")
    if is_insecure:
        if not ipaddress.ip_address(address).is_loopback:
            wanted = f"a loopback address, as {LOOPBACK}"
            problems.append(f"--insecure-loopback: --bind-address is {address}, wanted {wanted}")
        problems += [
            f"--insecure-loopback: plain HTTP without authentication, --{name} has no meaning"
            for name in _NEEDING_TLS
            if getattr(flags, name.replace("-", "_"))
        ]
    tolerates = flags.authentication_tolerate_lookup_failure
    return ServingOptions(
        bind_address=address,
        secure_port=flags.secure_port,
        insecure_loopback=is_insecure,
        cert_dir=flags.cert_dir,
        tls_cert_file=flags.tls_cert_file,
        tls_private_key_file=flags.tls_private_key_file,
        tls_sni_cert_keys=tuple(flags.tls_sni_cert_key or ()),
        tls_min_version=flags.tls_min_version,
        tls_cipher_suites=flags.tls_cipher_suites,
        client_ca_file=flags.client_ca_file,
        requestheader_client_ca_file=flags.requestheader_client_ca_file,
        front_proxy=_front_proxy(flags),
        authentication_kubeconfig=flags.authentication_kubeconfig,
        authentication_skip_lookup=bool(flags.authentication_skip_lookup),
        authentication_tolerate_lookup_failure=True if tolerates is None else tolerates,
        authentication_cache_seconds=flags.authentication_token_webhook_cache_ttl,
        authorization_kubeconfig=flags.authorization_kubeconfig,
        authorization_always_allow_paths=flags.authorization_always_allow_paths,
        authorized_cache_seconds=flags.authorization_webhook_cache_authorized_ttl,
        unauthorized_cache_seconds=flags.authorization_webhook_cache_unauthorized_ttl,
    )


def proxy_notes(flags: argparse.Namespace) -> list[str]:
    """Return a note for each flag about proxies that has no effect without their CA."""
    if flags.requestheader_client_ca_file:
        return []
    why = "has no effect without --requestheader-client-ca-file"
    return [
        f"--{flag.replace('_', '-')} {why}"
        for flag in PROXY_FLAGS
        if getattr(flags, flag) is not None
    ]


def _front_proxy(flags: argparse.Namespace) -> FrontProxy:
    given = {
        name: tuple(one for part in getattr(flags, flag) for one in part)
        for flag, name in PROXY_FLAGS.items()
        if getattr(flags, flag) is not None
    }
    return FrontProxy(**given)


# -- declarations -------------------------------------------------------------------------------


def add_serving_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the flags, in kube-scheduler's groups."""
    _add_serving(parser.add_argument_group("secure serving flags"))
    _add_authentication(parser.add_argument_group("authentication flags"))
    _add_authorization(parser.add_argument_group("authorization flags"))


def _add_serving(group: FlagGroup) -> None:
    group.add_argument(
        "--bind-address",
        type=checked(_parse_address),
        metavar="IP",
        help="address to listen on (default 0.0.0.0: all interfaces)",
    )
    group.add_argument(
        "--secure-port",
        type=checked(_parse_port),
        default=10259,
        metavar="PORT",
        help="HTTPS port of health, metrics and debugging; 0 disables them (default 10259)",
    )
    add_switch(
        group,
        "insecure-loopback",
        "plain HTTP without authentication, on a loopback address only: every user of the machine "
        "may read (default false)",
    )
    group.add_argument(
        "--cert-dir",
        default="",
        metavar="DIR",
        help="directory of kube-scheduler.crt and .key, generated there if missing "
        "(default: a self-signed certificate in memory)",
    )
    group.add_argument("--tls-cert-file", default="", metavar="FILE", help="serving certificate")
    group.add_argument("--tls-private-key-file", default="", metavar="FILE", help="its key")
    group.add_argument(
        "--tls-sni-cert-key",
        type=checked(_parse_pair),
        action="append",
        metavar="CERT,KEY[:NAME,...]",
        help="certificate and key for clients that ask for one of these names, as *.example.com; "
        "without names for those of the certificate; may be given several times",
    )
    group.add_argument(
        "--tls-min-version",
        type=checked(_parse_tls_version),
        default="",
        metavar="VERSION",
        help=f"one of {', '.join(TLS_VERSIONS)}; at least 1.2 is always required",
    )
    group.add_argument(
        "--tls-cipher-suites",
        type=checked(_parse_cipher_suites),
        default=(),
        metavar="NAME,...",
        help="suites of TLS 1.2, by Go's names (default: OpenSSL's)",
    )


def _add_authentication(group: FlagGroup) -> None:
    group.add_argument(
        "--authentication-kubeconfig",
        default="",
        metavar="FILE",
        help="credentials to create tokenreviews with (default: the scheduler's)",
    )
    add_switch(
        group,
        "authentication-skip-lookup",
        "do not look up the CAs of users and proxies in the cluster's configmap (default false)",
    )
    add_switch(
        group,
        "authentication-tolerate-lookup-failure",
        "start without the CAs when the look-up fails (default true)",
    )
    _add_ttl(group, "authentication-token-webhook-cache-ttl", "time to cache token reviews")
    group.add_argument(
        "--client-ca-file",
        default="",
        metavar="FILE",
        help="CA of client certificates (default: the cluster's, from the configmap)",
    )
    group.add_argument(
        "--requestheader-client-ca-file",
        default="",
        metavar="FILE",
        help="CA of the certificates of proxies that name users in headers; without it, this and "
        "the flags below are the cluster's, from the configmap",
    )
    for name, meaning in (
        ("allowed-names", "common names of these certificates (default: any)"),
        ("username-headers", "headers for the user, the first counts (default x-remote-user)"),
        ("uid-headers", "headers for the user's UID (default none; x-remote-uid is common)"),
        ("group-headers", "headers for groups (default x-remote-group)"),
        ("extra-headers-prefix", "prefixes of headers for more (default x-remote-extra-)"),
    ):
        group.add_argument(
            f"--requestheader-{name}",
            type=checked(_parse_names),
            action="append",
            metavar="NAME,...",
            help=meaning,
        )


def _add_authorization(group: FlagGroup) -> None:
    group.add_argument(
        "--authorization-kubeconfig",
        default="",
        metavar="FILE",
        help="credentials to create subjectaccessreviews with (default: the scheduler's)",
    )
    group.add_argument(
        "--authorization-always-allow-paths",
        type=checked(_parse_paths),
        default=ALWAYS_ALLOW_PATHS,
        metavar="PATH,...",
        help="paths that everybody may read, a prefix if one ends in * "
        f"(default {','.join(ALWAYS_ALLOW_PATHS)})",
    )
    _add_ttl(group, "authorization-webhook-cache-authorized-ttl", "time to cache what is allowed")
    _add_ttl(group, "authorization-webhook-cache-unauthorized-ttl", "time to cache what is not")


def _add_ttl(group: FlagGroup, name: str, meaning: str) -> None:
    group.add_argument(
        f"--{name}",
        type=checked(_parse_ttl),
        default=10.0,
        metavar=DURATION,
        help=f"{meaning} (default 10s)",
    )


def add_switch(group: FlagGroup, name: str, help_text: str) -> None:
    """A boolean as Go's flags spell it: ``--name``, ``--name=false``."""
    group.add_argument(
        f"--{name}",
        nargs="?",
        const=True,
        type=checked(parse_bool),
        metavar="true|false",
        help=help_text,
    )


def checked(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Make argparse print the parser's own message instead of 'invalid value'."""

    def checked_value(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked_value


def _parse_port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise ValueError(f"must be a port between 0 and 65535, got {text!r}")
    return int(text)


def _parse_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError(f"must be an IP address, got {text!r}") from None


def _parse_tls_version(text: str) -> str:
    if text and text not in TLS_VERSIONS:
        raise ValueError(f"unknown tls version {text!r}, wanted one of {', '.join(TLS_VERSIONS)}")
    return text


def _parse_pair(text: str) -> NamedPair:
    files, colon, names = text.partition(":")
    if colon and not names.strip():
        raise ValueError("empty names list is not allowed")
    certificate, _, key = files.partition(",")
    if files.count(",") != 1:
        raise ValueError("expected comma separated certificate and key file paths")
    wanted = tuple(name.strip() for name in names.split(",")) if colon else ()
    return NamedPair(certificate.strip(), key.strip(), wanted)


def _parse_cipher_suites(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in CIPHER_SUITES]
    if unknown:
        raise ValueError(f"Cipher suite {', '.join(unknown)} not supported or doesn't exist")
    return names


def _parse_paths(text: str) -> tuple[str, ...]:
    paths = tuple(path.strip() for path in text.split(",") if path.strip())
    for path in paths:
        if "*" in path[:-1]:
            raise ValueError(f"{path!r}: only a trailing * is allowed")
    return tuple(f"/{path.lstrip('/')}" for path in paths)


def _parse_names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(",")) if text else ()
    if not all(name.strip() for name in names):
        raise ValueError(f"empty value in {text!r}")
    return names


def _parse_ttl(text: str) -> float:
    seconds = parse_duration(text)
    if seconds < 0:
        raise ValueError(f"must not be negative, got {text!r}")
    return seconds
