"""GET, LIST and WATCH."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from ksched.apiserver import event_versions
from ksched.apiserver.object_store import Entry, check_known_version
from ksched.apiserver.request import Call
from ksched.apiserver.resource_registry import Registry
from ksched.apiserver.selection import parse_field_selector, parse_label_selector
from ksched.apiserver.served_resources import NEW_EVENTS, Resource
from ksched.apiserver.status_errors import (
    FieldError,
    GroupResource,
    StatusError,
    bad_request,
    expired,
    forbidden_field,
    invalid,
    not_supported,
)
from ksched.apiserver.tables import TableOptions, table, wants_table
from ksched.apiserver.watching import Selection, Watch, WatchOptions
from ksched.transport import JSON, Response

_LIST_OPTIONS = GroupResource("meta.k8s.io", "ListOptions")
_NOT_OLDER_THAN, _EXACT = "NotOlderThan", "Exact"
_INCONSISTENT = -1
_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time "
    "the first chunk was returned and now may show up in the list."
)
_SHORTEST_WATCH_SECONDS = 1800.0


class Page(NamedTuple):
    """A part of a list, and how to get the next one."""

    entries: list[Entry]
    version: int
    continue_token: str = ""
    remaining: int | None = None

    def metadata(self) -> dict[str, object]:
        metadata: dict[str, object] = {"resourceVersion": str(self.version)}
        if self.continue_token:
            metadata["continue"] = self.continue_token
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        return metadata


class Reader:
    """Answers the requests that change nothing."""

    def __init__(self, registry: Registry, seed: int, watch_queue_limit: int) -> None:
        self._registry, self._store = registry, registry.store
        self._random = random.Random(seed)
        self._watch_queue_limit = watch_queue_limit

    def get(self, call: Call) -> Response:
        target = call.target
        entry = self._registry.get(target.resource, target.namespace, target.name)
        if as_table := _table_asked(call):
            metadata: dict[str, object] = {"resourceVersion": str(entry.version)}
            return self._table(call.resource, [entry], as_table, metadata)
        return Response(200, {"Content-Type": JSON}, shaped(call.resource, entry))

    def list(self, call: Call) -> Response:
        page = self.page(call)
        if as_table := _table_asked(call):
            return self._table(call.resource, page.entries, as_table, page.metadata())
        return Response(200, {"Content-Type": JSON}, encode_list(call.resource, page))

    def page(self, call: Call) -> Page:
        """Return the objects a LIST (or a DELETECOLLECTION) is about."""
        _refuse_bad_options(call)
        selection, version = self.selection(call), call.version()
        limit, token = call.number("limit") or 0, call.query.get("continue", "")
        collection = self._store.collection(call.resource)
        start = ""
        if token:
            if version:
                raise bad_request("specifying resource version is not allowed when using continue")
            version, start = decode_continue(token)
            if version == _INCONSISTENT:
                version = self._store.version
            elif not collection.remembers(version):
                raise expired(_EXPIRED_CONTINUE, encode_continue(_INCONSISTENT, start))
        elif call.query.get("resourceVersionMatch") == _EXACT and version:
            check_known_version(self._store, version)
            if not collection.remembers(version):
                raise expired(f"The resourceVersion for the provided list is too old: {version}")
        else:
            check_known_version(self._store, version or 0)
            # Everything here is as fresh as can be, which satisfies "not older than" and "any".
            version = self._store.version
        entries = collection.iterate_at(version, start, selection.namespace)
        return _cut(entries, selection, limit, version)

    def watch(self, call: Call) -> Watch:
        """Open a watch; errors are reported inside the stream, as upstream does."""
        _refuse_bad_options(call)
        version, asked = call.version(), call.query.get("sendInitialEvents")
        initial = call.flag("sendInitialEvents") if asked is not None else not version
        bookmarks = call.flag("allowWatchBookmarks")
        options = WatchOptions(
            resource=call.resource,
            selection=self.selection(call),
            timeout_seconds=call.number("timeoutSeconds") or self._watch_seconds(),
            bookmarks=bookmarks,
            announce_initial_end=initial and bookmarks,
            render=self._renderer(call),
            queue_limit=self._watch_queue_limit,
        )
        clock, collection = self._registry.clock, self._store.collection(call.resource)
        watch = Watch(clock, lambda: self._store.version, options)
        if initial:
            check_known_version(self._store, version or 0)
            watch.begin_with_state(collection.iterate("", options.selection.namespace))
        elif version:
            try:
                # A real server waits for a future version. Versions here restart with the
                # process, so a client from before a restart would wait forever.
                check_known_version(self._store, version)
                watch.begin_with_changes(collection.changes_since(version))
            except StatusError as error:
                watch.begin_with_error(error)
                return watch
        watch.follow(collection)
        return watch

    def selection(self, call: Call) -> Selection:
        """Return what a collection request selects."""
        return Selection(
            call.target.namespace,
            parse_label_selector(call.query.get("labelSelector", "")),
            parse_field_selector(call.query.get("fieldSelector", ""), call.resource.field_labels),
        )

    def _renderer(self, call: Call) -> Callable[[Entry], bytes] | None:
        as_table = _table_asked(call)
        if as_table is None:
            return renderer(call.resource)
        return lambda entry: self._encode_table(
            call.resource, [entry], as_table, {"resourceVersion": str(entry.version)}
        )

    def _table(
        self,
        resource: Resource,
        entries: Iterable[Entry],
        options: TableOptions,
        metadata: dict[str, object],
    ) -> Response:
        body = self._encode_table(resource, entries, options, metadata)
        return Response(200, {"Content-Type": JSON}, body)

    def _encode_table(
        self,
        resource: Resource,
        entries: Iterable[Entry],
        options: TableOptions,
        metadata: dict[str, object],
    ) -> bytes:
        objects = (entry.decode() for entry in entries)
        now = self._registry.clock.wall()
        return msgspec.json.encode(table(resource, objects, options, metadata, now))

    def _watch_seconds(self) -> float:
        """Watches end at different times, so that they are not all reopened at once."""
        return _SHORTEST_WATCH_SECONDS * (1 + self._random.random())


def _table_asked(call: Call) -> TableOptions | None:
    if "as=Table" not in call.request.accept:
        return None
    return wants_table(call.request.accept, call.query.get("includeObject", ""))


def renderer(resource: Resource) -> Callable[[Entry], bytes] | None:
    """Return how a kind is shown where that is not how it is stored."""
    if resource is NEW_EVENTS:
        return lambda entry: entry.variant(NEW_EVENTS.group_version, event_versions.from_stored)
    return None


def shaped(resource: Resource, entry: Entry) -> bytes:
    """Return an object's bytes in the requested version."""
    render = renderer(resource)
    return entry.raw if render is None else render(entry)


def encode_list(resource: Resource, page: Page) -> bytes:
    """Join the stored bytes of a page's objects to a list, without decoding them."""
    skip, render = len(resource.preamble), renderer(resource)
    raws = [entry.raw if render is None else render(entry) for entry in page.entries]
    items = b",".join([b"{" + raw[skip:] for raw in raws])
    return b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[%s]}' % (
        resource.kind.encode(),
        resource.group_version.encode(),
        msgspec.json.encode(page.metadata()),
        items,
    )


def encode_continue(version: int, start: str) -> str:
    token = {"v": "meta.k8s.io/v1", "rv": version, "start": start}
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def decode_continue(token: str) -> tuple[int, str]:
    """Return version and first key of a page; raises a 400 for a token we did not make."""
    try:
        padded = token + "=" * (-len(token) % 4)
        decoded = msgspec.json.decode(base64.urlsafe_b64decode(padded))
        return int(decoded["rv"]), str(decoded["start"])
    except (ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
        problem = f"continue key is not valid: {error}"
        raise bad_request(f"invalid continue token: {problem}") from error


def _cut(entries: Iterator[Entry], selection: Selection, limit: int, version: int) -> Page:
    if selection.is_everything and not limit:
        return Page(list(entries), version)
    matching: Iterable[Entry] = filter(selection.matches, entries)
    if not limit:
        return Page(list(matching), version)
    taken: list[Entry] = []
    for entry in matching:
        if len(taken) == limit:
            token = encode_continue(version, taken[-1].key + "\0")
            remaining = 1 + sum(1 for _ in entries) if selection.is_everything else None
            return Page(taken, version, token, remaining)
        taken.append(entry)
    return Page(taken, version)


def _refuse_bad_options(call: Call) -> None:
    errors = _watch_problems(call) if call.flag("watch") else _list_problems(call)
    if errors:
        raise invalid(_LIST_OPTIONS, "", errors)


def _list_problems(call: Call) -> list[FieldError]:
    match, version = call.query.get("resourceVersionMatch", ""), call.query.get("resourceVersion")
    field, errors = "resourceVersionMatch", []
    if match:
        if not version:
            problem = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            errors.append(forbidden_field(field, problem))
        if call.query.get("continue"):
            problem = "resourceVersionMatch is forbidden when continue is provided"
            errors.append(forbidden_field(field, problem))
        if match not in (_EXACT, _NOT_OLDER_THAN):
            errors.append(not_supported(field, match, (_EXACT, _NOT_OLDER_THAN, "")))
        if match == _EXACT and version == "0":
            problem = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            errors.append(forbidden_field(field, problem))
    if "sendInitialEvents" in call.query:
        problem = "sendInitialEvents is forbidden for list"
        errors.append(forbidden_field("sendInitialEvents", problem))
    return errors


def _watch_problems(call: Call) -> list[FieldError]:
    match, initial = call.query.get("resourceVersionMatch", ""), call.query.get("sendInitialEvents")
    field, errors = "resourceVersionMatch", []
    if initial is not None and match != _NOT_OLDER_THAN:
        problem = f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER_THAN}"
        errors.append(forbidden_field(field, problem))
    if match:
        if initial is None:
            problem = (
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
            errors.append(forbidden_field(field, problem))
        if match != _NOT_OLDER_THAN:
            errors.append(not_supported(field, match, (_NOT_OLDER_THAN,)))
        if call.query.get("continue"):
            problem = "resourceVersionMatch is forbidden when continue is provided"
            errors.append(forbidden_field(field, problem))
    return errors
