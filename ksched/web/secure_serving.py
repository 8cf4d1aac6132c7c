"""HTTPS and delegated access for the scheduler's port, kept current while it runs."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from ksched.client.rest import ApiClient
from ksched.clock import Clock
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
    TokenReviews and the look-up of the CA, and for SubjectAccessReviews.
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
            client_ca=lambda: self.tls.client_ca,
        )
        self._has_warned = False

    @property
    def _looks_up(self) -> bool:
        options = self._options
        return not (options.client_ca_file or options.authentication_skip_lookup)

    async def start(self) -> None:
        """Look up the CA now if the process must not start without; raises ``ConfigError``."""
        if not self._looks_up or self._options.authentication_tolerate_lookup_failure:
            return
        try:
            await self._look_up()
        except ApiError as error:
            flag = "--authentication-tolerate-lookup-failure=false"
            problem = f"{flag}: cannot look up the client CA: {error}"
            raise ConfigError([problem]) from error

    async def keep_current(self) -> None:
        """Reload files and look up the CA again, for ever."""
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
        authorities = data.get("client-ca-file", "").strip()
        self.tls.set_cluster_ca(authorities.encode())
