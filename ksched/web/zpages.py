"""``/flagz`` and ``/statusz``: flags and state of the process, as kube-scheduler shows them.

Text for people, or an object of the group config.k8s.io as JSON or YAML if it is requested by
version and kind. Behind the feature gates ComponentFlagz and ComponentStatusz.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from ksched import __version__
from ksched.clock import rfc3339
from ksched.web.api_failures import failure_status
from ksched.web.content_negotiation import JSON, MEDIA_TYPES, TEXT, Choice, Target, negotiate

COMPONENT: Final = "ksched"
EMULATION_VERSION: Final = "1.36"
"""The version of Kubernetes whose scheduler this one behaves as."""

_GROUP: Final = "config.k8s.io"
_VERSIONS: Final = ("v1alpha1", "v1beta1")
_DEPRECATED: Final = frozenset({"v1alpha1"})
_TEXT_TYPE: Final = "text/plain; charset=utf-8"
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility "
    "guarantees and is for debugging purposes only."
)
_BROWSERS: Final = ("curl", "Wget", "Mozilla/5.0")
"""Clients of people, by the start of their user agent: they get indented JSON."""


class Answer(NamedTuple):
    """A response."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str]


class ZPage:
    """One page; ``text`` renders what ``fields`` returns."""

    def __init__(
        self,
        kind: str,
        fields: Callable[[], Mapping[str, Any]],
        text: Callable[[Mapping[str, Any]], str],
    ) -> None:
        self._kind, self._fields, self._text = kind, fields, text

    def answer(self, accept: str, *, is_pretty: bool = False) -> Answer:
        """Return the page as the client accepts it, or 406."""
        choice = negotiate(accept, self._allows) if accept.strip() else Choice(TEXT, None, False)
        if choice is None:
            return _not_acceptable(accept, is_pretty)
        if choice.target is None:
            head = f"\n{COMPONENT} {self._kind.lower()}\n{_WARNING}\n"
            return Answer(200, _TEXT_TYPE, (head + self._text(self._fields())).encode(), {})
        group, version, kind = choice.target
        content = {
            "kind": kind,
            "apiVersion": f"{group}/{version}",
            "metadata": {"name": COMPONENT},
            **self._fields(),
        }
        headers = {}
        if version in _DEPRECATED:
            text = f"This version of the {kind.lower()} endpoint is deprecated."
            headers["Warning"] = f'299 - "{text} Please use a newer version."'
        content_type = f"{choice.media_type};g={group};v={version};as={kind}"
        body = _encoded(content, choice.media_type, is_pretty or choice.is_pretty)
        return Answer(200, content_type, body, headers)

    def _allows(self, media_type: str, target: Target | None) -> bool:
        if media_type == TEXT or target is None:
            return media_type == TEXT and target is None
        return target in [Target(_GROUP, version, self._kind) for version in _VERSIONS]


def flagz(flags: Mapping[str, str]) -> ZPage:
    """All flags and their values, which have no secrets any more.

    kube-scheduler: flagzTextSerializer.
    """
    shown = dict(sorted(flags.items()))

    def text(fields: Mapping[str, Any]) -> str:
        return "".join(f"{name}={value}\n" for name, value in fields["flags"].items())

    return ZPage("Flagz", lambda: {"flags": shown}, text)


def statusz(started: float, wall: Callable[[], float], paths: Iterable[str]) -> ZPage:
    """Start, versions and paths of a process that ``started`` at a wall time.

    The runtime's version is in the field of Go's.

    kube-scheduler: statuszTextSerializer, aggregatePaths.
    """
    folders = sorted({f"/{first}" for path in paths if (first := path.split("/")[1])})

    def fields() -> Mapping[str, Any]:
        return {
            "startTime": rfc3339(started),
            "uptimeSeconds": max(0, int(wall() - started)),
            "goVersion": f"python{platform.python_version()}",
            "binaryVersion": __version__,
            "emulationVersion": EMULATION_VERSION,
            "paths": folders,
        }

    def text(shown: Mapping[str, Any]) -> str:
        minutes, seconds = divmod(shown["uptimeSeconds"], 60)
        hours, minutes = divmod(minutes, 60)
        at = datetime.fromtimestamp(int(started), UTC).astimezone()
        lines = {
            "Started": f"{at:%a %b %e %H:%M:%S %Z %Y}",
            "Up": f"{hours} hr {minutes:02} min {seconds:02} sec",
            "Python version": platform.python_version(),
            "Binary version": shown["binaryVersion"],
            "Emulation version": shown["emulationVersion"],
            "Paths": " ".join(shown["paths"]),
        }
        return "\n" + "".join(f"{name}: {value}\n" for name, value in lines.items())

    return ZPage("Statusz", fields, text)


def wants_indentation(pretty: str | None, user_agent: str) -> bool:
    """Whether JSON is indented: ``?pretty``, or a client of people without it.

    kube-scheduler: isPrettyPrint.
    """
    if pretty:
        return pretty.lower() in ("1", "t", "true")
    return user_agent.startswith(_BROWSERS)


def _not_acceptable(accept: str, is_pretty: bool) -> Answer:
    """Name what is accepted, in a format that the client accepts if there is one."""
    message = f"only the following media types are accepted: {', '.join(MEDIA_TYPES)}"
    status = failure_status(406, "NotAcceptable", message)
    choice = negotiate(accept, lambda media_type, target: media_type != TEXT and target is None)
    media_type = choice.media_type if choice else JSON
    return Answer(406, media_type, _encoded(status, media_type, is_pretty or choice is None), {})


def _encoded(content: Mapping[str, Any], media_type: str, is_pretty: bool) -> bytes:
    if media_type != JSON:
        return yaml.safe_dump(content, sort_keys=True).encode()
    body = msgspec.json.encode(content)
    return msgspec.json.format(body, indent=2) if is_pretty else body + b"\n"
