"""The objects that can hold the record, behind one interface.

A Lease is the normal one. Clusters older than 1.14 have none and store the record in an annotation
of an Endpoints or ConfigMap object; the two-object locks are for the migration, respected by
replicas of either kind. Each is a lock by optimistic concurrency: an update carries the
resourceVersion it was made for, and of two the server rejects one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from ksched.api.decoding import ADDED, ERROR, MODIFIED, decode_watch_event
from ksched.api.resources import CONFIG_MAPS, ENDPOINTS, LEASES, ApiResource
from ksched.client.api_status import error_from_status
from ksched.client.rest import ApiClient, Selection
from ksched.client.retry import NO_RETRY
from ksched.clock import Clock, rfc3339
from ksched.configuration.model import LeaderElection
from ksched.election.record import (
    NOBODY,
    LeaderElectionRecord,
    from_annotation,
    from_lease,
    to_annotation,
    to_lease_spec,
)
from ksched.errors import Conflict, InvalidObject, NotFound

ANNOTATION: Final = "control-plane.alpha.kubernetes.io/leader"
UNKNOWN_LEADER: Final = "leaderelection.k8s.io/unknown"
WATCH_SECONDS: Final = 600

_CORE_EVENTS: Final = ApiResource("", "v1", "events", "Event")

OnChange = Callable[[LeaderElectionRecord, str], None]
"""Called with the current record, and its version as of ``ResourceLock.version``."""


class ResourceLock(Protocol):
    """One object that holds the record. ``timeout`` bounds a call, which is never repeated.

    Failures are ``ApiError``; a record that cannot be parsed is ``InvalidObject``.
    """

    identity: str
    """Our identity in the record."""

    @property
    def version(self) -> str:
        """The resourceVersion of the record last read or written; it grows unless data was lost."""
        ...

    async def get(self, timeout: float) -> LeaderElectionRecord:
        """Read the record; ``NotFound`` when there is no object."""
        ...

    async def create(self, record: LeaderElectionRecord, timeout: float) -> None:
        """Create the object; ``Conflict`` if it exists."""
        ...

    async def update(self, record: LeaderElectionRecord, timeout: float) -> None:
        """Replace the record last seen; ``Conflict`` if it has changed since."""
        ...

    async def watch(self, on_change: OnChange, idle_timeout: float) -> None:
        """Report the current record and every new one, until the server ends the watch."""
        ...

    async def record_event(self, text: str, timeout: float) -> None:
        """Write an Event about the object: our identity and ``text``."""
        ...

    def describe(self) -> str:
        """``namespace/name``."""
        ...


class ObjectLock:
    """A lock on one object, stored complete as last seen: other fields are preserved."""

    def __init__(
        self,
        client: ApiClient,
        clock: Clock,
        resource: ApiResource,
        namespace: str,
        name: str,
        identity: str,
        component: str,
    ) -> None:
        self.identity = identity
        self._client, self._clock, self._resource = client, clock, resource
        self._namespace, self._name = namespace, name
        self._component = component
        self._object: dict[str, Any] = {}

    @property
    def version(self) -> str:
        return _version(self._object)

    async def get(self, timeout: float) -> LeaderElectionRecord:
        body = await self._client.get(
            self._resource, self._namespace, self._name, timeout=timeout, retry=NO_RETRY
        )
        self._object = self._decode(body)
        return self._record(self._object)

    async def create(self, record: LeaderElectionRecord, timeout: float) -> None:
        new = {
            "apiVersion": self._resource.api_version,
            "kind": self._resource.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
        }
        body = msgspec.json.encode(self._with_record(new, record))
        answer = await self._client.create(
            self._resource, self._namespace, body, timeout=timeout, retry=NO_RETRY
        )
        self._object = self._decode(answer)

    async def update(self, record: LeaderElectionRecord, timeout: float) -> None:
        body = msgspec.json.encode(self._with_record(self._object, record))
        answer = await self._client.update(
            self._resource, self._namespace, self._name, body, timeout=timeout, retry=NO_RETRY
        )
        self._object = self._decode(answer)

    async def watch(self, on_change: OnChange, idle_timeout: float) -> None:
        selection = Selection(self._namespace, field_selector=f"metadata.name={self._name}")
        async with self._client.watch(
            self._resource,
            selection,
            resource_version="",
            timeout_seconds=WATCH_SECONDS,
            idle_timeout=idle_timeout,
        ) as lines:
            async for line in lines:
                event = decode_watch_event(line)
                if event.type == ERROR:
                    raise error_from_status("WATCH", self._resource.path(), event.object)
                if event.type in (ADDED, MODIFIED):
                    seen = self._decode(event.object)
                    on_change(self._record(seen), _version(seen))

    async def record_event(self, text: str, timeout: float) -> None:
        meta, wall = self._object.get("metadata") or {}, self._clock.wall()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{self._name}.{int(wall * 1e9):x}",
                "namespace": self._namespace,
            },
            "involvedObject": {
                "apiVersion": self._resource.api_version,
                "kind": self._resource.kind,
                "namespace": self._namespace,
                "name": self._name,
                "uid": meta.get("uid", ""),
                "resourceVersion": meta.get("resourceVersion", ""),
            },
            "type": "Normal",
            "reason": "LeaderElection",
            "message": f"{self.identity} {text}",
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": rfc3339(wall),
            "lastTimestamp": rfc3339(wall),
            "count": 1,
        }
        body = msgspec.json.encode(event)
        await self._client.create(
            _CORE_EVENTS, self._namespace, body, timeout=timeout, retry=NO_RETRY
        )

    def describe(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _decode(self, body: bytes | msgspec.Raw) -> dict[str, Any]:
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidObject(self._resource.kind, self.describe(), str(error)) from error

    def _record(self, obj: dict[str, Any]) -> LeaderElectionRecord:
        raise NotImplementedError

    def _with_record(self, obj: dict[str, Any], record: LeaderElectionRecord) -> dict[str, Any]:
        raise NotImplementedError


def _version(obj: dict[str, Any]) -> str:
    version: str = (obj.get("metadata") or {}).get("resourceVersion", "")
    return version


class LeaseLock(ObjectLock):
    """The record as the ``spec`` of a Lease."""

    def _record(self, obj: dict[str, Any]) -> LeaderElectionRecord:
        return from_lease(obj)

    def _with_record(self, obj: dict[str, Any], record: LeaderElectionRecord) -> dict[str, Any]:
        return {**obj, "spec": to_lease_spec(record)}


class AnnotationLock(ObjectLock):
    """The record as an annotation; an object without one has no holder."""

    def _record(self, obj: dict[str, Any]) -> LeaderElectionRecord:
        annotations = obj.get("metadata", {}).get("annotations") or {}
        text = annotations.get(ANNOTATION)
        return from_annotation(self.describe(), text) if text else NOBODY

    def _with_record(self, obj: dict[str, Any], record: LeaderElectionRecord) -> dict[str, Any]:
        meta = obj["metadata"]
        annotations = {**(meta.get("annotations") or {}), ANNOTATION: to_annotation(record)}
        return {**obj, "metadata": {**meta, "annotations": annotations}}


class MultiLock:
    """Two locks held together, for the time in which replicas of two kinds run.

    A candidate that holds only one of them does not lead, and blocks all others until it expires.
    """

    def __init__(self, primary: ResourceLock, secondary: ResourceLock) -> None:
        self.identity = primary.identity
        self._primary, self._secondary = primary, secondary

    @property
    def version(self) -> str:
        return self._primary.version

    async def get(self, timeout: float) -> LeaderElectionRecord:
        primary = await self._primary.get(timeout)
        try:
            secondary = await self._secondary.get(timeout)
        except NotFound:
            return primary
        if primary.holder_identity == secondary.holder_identity:
            return primary
        return msgspec.structs.replace(
            primary,
            holder_identity=UNKNOWN_LEADER,
            # Either of the two may be current: a renewal of any must be seen as a change.
            lease_duration_seconds=max(
                primary.lease_duration_seconds, secondary.lease_duration_seconds
            ),
            renew_time=f"{primary.renew_time} {secondary.renew_time}",
        )

    async def create(self, record: LeaderElectionRecord, timeout: float) -> None:
        try:
            await self._primary.create(record, timeout)
        except Conflict:
            pass  # left behind by a candidate that did not get the second one
        await self._secondary.create(record, timeout)

    async def update(self, record: LeaderElectionRecord, timeout: float) -> None:
        await self._primary.update(record, timeout)
        try:
            await self._secondary.get(timeout)
        except NotFound:
            await self._secondary.create(record, timeout)
        else:
            await self._secondary.update(record, timeout)

    async def watch(self, on_change: OnChange, idle_timeout: float) -> None:
        # It is written last, so when it changes the other has changed already. Its versions are
        # not those of the other.
        await self._secondary.watch(lambda record, _: on_change(record, ""), idle_timeout)

    async def record_event(self, text: str, timeout: float) -> None:
        await self._primary.record_event(text, timeout)

    def describe(self) -> str:
        return self._primary.describe()


_LOCKS: Final[dict[str, tuple[tuple[type[ObjectLock], ApiResource], ...]]] = {
    "leases": ((LeaseLock, LEASES),),
    "endpoints": ((AnnotationLock, ENDPOINTS),),
    "configmaps": ((AnnotationLock, CONFIG_MAPS),),
    "endpointsleases": ((AnnotationLock, ENDPOINTS), (LeaseLock, LEASES)),
    "configmapsleases": ((AnnotationLock, CONFIG_MAPS), (LeaseLock, LEASES)),
}


def make_lock(
    config: LeaderElection, client: ApiClient, clock: Clock, identity: str, component: str
) -> ResourceLock:
    """Build the configured lock; ``component`` is the reporter of its Events.

    Pass it a client of its own, on a transport of its own: a renewal queued behind a thousand binds
    comes too late.
    """
    namespace, name = config.resource_namespace, config.resource_name
    locks = [
        kind(client, clock, resource, namespace, name, identity, component)
        for kind, resource in _LOCKS[config.resource_lock]
    ]
    return locks[0] if len(locks) == 1 else MultiLock(*locks)


def make_identity(hostname: str) -> str:
    """Return a unique identity of the process that shows its host."""
    return f"{hostname}_{uuid.uuid4()}"
