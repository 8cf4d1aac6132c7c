"""kubernetes-asyncio's typed API on our own connection, for plugins.

``CoreV1Api(handle.api_client)`` has that library's methods and models; what they send goes through
``ApiClient``, so it has its rate limit, deadlines and retries, and writes wait for the lease like
any other. Errors are those of ``ksched.errors``, not the library's ``ApiException``.

The library needs more than a second to be imported: nothing here is loaded before a plugin uses it.

Does not belong here: watches. ``handle.listers.require`` watches any kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from aiohttp import ClientTimeout
from kubernetes_asyncio.client import ApiClient as GeneratedClient
from kubernetes_asyncio.client import Configuration

from ksched.client.rest import DEFAULT_TIMEOUT, ApiClient
from ksched.client.retry import REPEATABLE, UNREPEATABLE
from ksched.transport import JSON, Response

_READS: Final = ("GET", "HEAD", "OPTIONS")
_NO_WATCH: Final = (
    "{method} {path}: no watch and no raw answer can be had from handle.api_client; "
    "handle.listers.require(kind) is kept up to date by a watch"
)


class TypedResponse:
    """A response as the generated code expects it."""

    def __init__(self, response: Response) -> None:
        self.status, self.reason = response.status, ""
        self.data: bytes | str = response.body
        self._headers = {name.lower(): value for name, value in response.headers.items()}

    def getheaders(self) -> Mapping[str, str]:
        return self._headers

    def getheader(self, name: str, default: str | None = None) -> str | None:
        return self._headers.get(name.lower(), default)


class TypedClient(GeneratedClient):
    """The ``api_client`` of the library's ``CoreV1Api`` and similar classes."""

    def __init__(self, client: ApiClient) -> None:
        # Not the library's: it would open a connection pool of its own.
        self.configuration = Configuration(host="")
        self.client_side_validation = self.configuration.client_side_validation
        self.default_headers: dict[str, str] = {}
        self.cookie = ""
        self._client = client

    @property
    def pool(self) -> Any:
        raise TypeError("async_req is not possible, await the call itself")

    async def close(self) -> None:
        """Nothing to do: the connection is the scheduler's."""

    async def request(
        self,
        method: str,
        url: str,
        query_params: Iterable[tuple[str, Any]] | None = None,
        headers: Mapping[str, str] | None = None,
        post_params: Any = None,
        body: Any = None,
        _preload_content: bool = True,
        _request_timeout: Any = None,
    ) -> TypedResponse:
        query = [(name, _text(value)) for name, value in query_params or ()]
        if not _preload_content or ("watch", "true") in query:
            raise TypeError(_NO_WATCH.format(method=method, path=url))
        path = f"{url}?{urlencode(query, quote_via=quote)}" if query else url
        encoded = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        response = await self._client.exchange(
            method,
            path,
            encoded,
            content_type=(headers or {}).get("Content-Type", JSON),
            timeout=_seconds(_request_timeout),
            retry=REPEATABLE if method in _READS else UNREPEATABLE,
        )
        return TypedResponse(response)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _seconds(timeout: Any) -> float:
    """The library takes one number, one to connect and one to read, or aiohttp's time-outs."""
    if timeout is None:
        return DEFAULT_TIMEOUT
    if isinstance(timeout, ClientTimeout):
        return timeout.total or DEFAULT_TIMEOUT
    return float(sum(timeout) if isinstance(timeout, tuple) else timeout)
