"""A watched copy of a collection for the simulated kubelet and controllers.

The scheduler has its own, stricter reflector; this one lives on the server's side of the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import msgspec

from ksched.apiserver.served_resources import JsonObject
from ksched.apiserver.watching import INITIAL_EVENTS_END
from ksched.clock import Clock
from ksched.errors import Unavailable
from ksched.transport import Transport

_RETRY_SECONDS = 1.0


def key_of(obj: JsonObject) -> str:
    """Return ``namespace/name``, or the bare name of a cluster-scoped object."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


class ObjectCache:
    """Objects by key, updated by ``run``; every change is reported after it is applied.

    ``on_change`` gets the object and whether it is still there.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        path: str,
        on_change: Callable[[JsonObject, bool], None],
    ) -> None:
        self.objects: dict[str, JsonObject] = {}
        self._transport, self._clock = transport, clock
        self._path, self._on_change = path, on_change

    async def run(self) -> None:
        """Watch for ever; a broken watch begins again with the state as it then is."""
        separator = "&" if "?" in self._path else "?"
        initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        path = f"{self._path}{separator}watch=true&allowWatchBookmarks=true&{initial}"
        while True:
            with suppress(Unavailable):
                await self._watch(path)
            await self._clock.sleep(_RETRY_SECONDS)

    async def _watch(self, path: str) -> None:
        missing: set[str] | None = set(self.objects)
        async with self._transport.stream(path) as stream:
            if stream.status != 200:
                raise Unavailable(stream.status, "", f"watch {path} was refused")
            async for line in stream.lines:
                event = msgspec.json.decode(line)
                kind, obj = event["type"], event["object"]
                if kind == "ERROR":
                    return
                if kind != "BOOKMARK":
                    if missing is not None:
                        # The state as it is, even if the server went back to an older one.
                        missing.discard(key_of(obj))
                        self.objects.pop(key_of(obj), None)
                    self.apply(obj, kind != "DELETED")
                elif missing is not None and INITIAL_EVENTS_END in obj["metadata"].get(
                    "annotations", {}
                ):
                    for key in missing:
                        self.apply(self.objects[key], False)
                    missing = None

    def apply(self, obj: JsonObject, present: bool) -> None:
        """Store an object, from the watch or from the response to an own write."""
        key = key_of(obj)
        known = self.objects.get(key)
        if known is not None and _version(obj) < _version(known):
            return
        if present:
            self.objects[key] = obj
        else:
            self.objects.pop(key, None)
        self._on_change(obj, present)


def _version(obj: JsonObject) -> int:
    return int(obj["metadata"]["resourceVersion"])
