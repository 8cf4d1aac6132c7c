"""Which proxies may name the user of a request, and in which headers.

kube-scheduler: RequestHeaderAuthenticationOptions.

Does not belong here: the CA of the proxies' certificates, without which no header is believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, kw_only=True)
class FrontProxy:
    """The defaults are those of the flags."""

    allowed_names: tuple[str, ...] = ()
    """Common names of the certificates of proxies; empty for any."""
    username_headers: tuple[str, ...] = ("x-remote-user",)
    """The first that is not empty decides."""
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("x-remote-group",)
    """All values of all of them."""
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)
    """Of headers whose names continue with the key."""


def front_proxy_of(data: Mapping[str, str]) -> FrontProxy:
    """Read the cluster's ConfigMap; raises ``ValueError``.

    kube-scheduler: getRequestHeaderBundleFromConfigMap.
    """

    def names(key: str) -> tuple[str, ...]:
        text = data.get(key, "")
        try:
            return (msgspec.json.decode(text, type=tuple[str, ...] | None) or ()) if text else ()
        except msgspec.DecodeError as error:
            raise ValueError(f"{key}: {error}") from error

    return FrontProxy(
        allowed_names=names("requestheader-allowed-names"),
        username_headers=names("requestheader-username-headers"),
        uid_headers=names("requestheader-uid-headers"),
        group_headers=names("requestheader-group-headers"),
        extra_prefixes=names("requestheader-extra-headers-prefix"),
    )
