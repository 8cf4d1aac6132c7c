"""HTTPS and delegated access for the scheduler's port, kept current while it runs."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from ksched.client.rest import ApiClient
from ksched.clock import Clock
from ksched.configuration.front_proxy import FrontProxy, front_proxy_of
from ksched.configuration.serving_flags import ServingOptions
from ksched.errors import ApiError, ConfigError
from ksched.transport import Transport
from ksched.web.access import Access
from ksched.web.access_reviews import AccessReviews
from ksched.web.server_tls import RELOAD_SECONDS, ServerTls

log = logging.getLogger(__name__)

CA_CONFIG_MAP: Final = (
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
)
LOOKUP_SECONDS: Final = 60.0
_LOOKUP_TIMEOUT_SECONDS: Final = 10.0


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


class SecureServing:
    """What the web server needs to be HTTPS and to decide who may read.

    ``authentication`` and ``authorization`` lead to the API server with the credentials for
    TokenReviews and the look-up of the CAs, and for SubjectAccessReviews.
    """

    def __init__(
        self,
        options: ServingOptions,
        authentication: Transport,
        authorization: Transport,
        clock: Clock,
    ) -> None:
        self._options = options
        self._client = ApiClient(authentication, clock)
        self._clock = clock
        self.tls = ServerTls(options, clock)
        reviews = AccessReviews(
            authentication,
            authorization,
            clock,
            token_seconds=options.authentication_cache_seconds,
            allowed_seconds=options.authorized_cache_seconds,
            denied_seconds=options.unauthorized_cache_seconds,
        )
        self.access = Access(
            reviews,
            clock,
            always_allow_paths=options.authorization_always_allow_paths,
            authorities=lambda: self.tls.authorities,
            front_proxy=lambda: self._front_proxy,
        )
        # Until the cluster names the headers there are none to believe.
        has_file = bool(options.requestheader_client_ca_file)
        self._front_proxy = options.front_proxy if has_file else FrontProxy(username_headers=())
        self._has_warned = False

    @property
    def _looks_up(self) -> bool:
        options = self._options
        has_files = options.client_ca_file and options.requestheader_client_ca_file
        return not (has_files or options.authentication_skip_lookup)

    async def start(self) -> None:
        """Look up the CAs now if the process must not start without; raises ``ConfigError``."""
        if not self._looks_up or self._options.authentication_tolerate_lookup_failure:
            return
        try:
            await self._look_up()
        except ApiError as error:
            flag = "--authentication-tolerate-lookup-failure=false"
            problem = f"{flag}: cannot look up the client CA: {error}"
            raise ConfigError([problem]) from error

    async def keep_current(self) -> None:
        """Reload files and look up the CAs again, for ever."""
        next_lookup = self._clock.now()
        while True:
            now = self._clock.now()
            if self._looks_up and now >= next_lookup:
                next_lookup = now + LOOKUP_SECONDS
                await self._try_look_up()
            await self._clock.sleep(RELOAD_SECONDS)
            self.tls.reload()

    async def _try_look_up(self) -> None:
        try:
            await self._look_up()
        except ApiError as error:
            if not self._has_warned:
                what = "client CA not found, client certificates known before remain valid"
                log.warning(what, extra={"err": str(error)})
            self._has_warned = True
        else:
            self._has_warned = False

    async def _look_up(self) -> None:
        answer = await self._client.request("GET", CA_CONFIG_MAP, timeout=_LOOKUP_TIMEOUT_SECONDS)
        try:
            data = msgspec.json.decode(answer, type=_ConfigMap).data
        except msgspec.DecodeError as error:
            problem = f"GET {CA_CONFIG_MAP}: not a ConfigMap: {error}"
            raise ApiError(0, "InvalidAnswer", problem) from error
        if not self._options.client_ca_file:
            self.tls.set_cluster_users(data.get("client-ca-file", "").strip().encode())
        if not self._options.requestheader_client_ca_file:
            self._trust_proxies(data)

    def _trust_proxies(self, data: dict[str, str]) -> None:
        """Take the CA of proxies and what they may do together, or neither."""
        try:
            front_proxy = front_proxy_of(data)
        except ValueError as error:
            problem = f"GET {CA_CONFIG_MAP}: {error}"
            raise ApiError(0, "InvalidAnswer", problem) from error
        authorities = data.get("requestheader-client-ca-file", "").strip().encode()
        self.tls.set_cluster_proxies(authorities)
        if self.tls.authorities.proxies == authorities:
            self._front_proxy = front_proxy
