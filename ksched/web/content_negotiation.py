"""Which representation of a page a client accepts, as Kubernetes' components negotiate it.

Structured representations are versioned objects and must be requested by group, version and kind,
for instance ``Accept: application/json;g=config.k8s.io;v=v1beta1;as=Statusz``.

kube-scheduler: NegotiateMediaTypeOptions, ParseAccept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

JSON: Final = "application/json"
YAML: Final = "application/yaml"
TEXT: Final = "text/plain"
MEDIA_TYPES: Final = (JSON, YAML, TEXT)
"""In the order in which ``*/*`` is tried."""

_REFUSED_PARAMETERS: Final = ("stream", "sv")


class Target(NamedTuple):
    """The object that a client wants to be sent."""

    group: str = ""
    version: str = ""
    kind: str = ""


class Choice(NamedTuple):
    """An accepted representation; without a target the client named none."""

    media_type: str
    target: Target | None
    is_pretty: bool


Allows = Callable[[str, Target | None], bool]
"""Whether a page exists in a media type, for a target."""


class Clause(NamedTuple):
    """A media type or range that a client accepts."""

    main_type: str
    subtype: str
    quality: float
    parameters: dict[str, str]

    def covers(self, media_type: str) -> bool:
        main_type, _, subtype = media_type.partition("/")
        if self.main_type == "*":
            return self.subtype == "*"
        return self.main_type == main_type and self.subtype in (subtype, "*")

    @property
    def target(self) -> Target | None:
        given = [self.parameters.get(name) for name in ("g", "v", "as")]
        return None if given == [None] * 3 else Target(*(value or "" for value in given))


def negotiate(accept: str, allows: Allows) -> Choice | None:
    """Return the most preferred representation that is allowed, or None if there is none."""
    for clause in preferred(accept):
        if any(clause.parameters.get(name) for name in _REFUSED_PARAMETERS):
            continue
        for media_type in MEDIA_TYPES:
            if clause.covers(media_type) and allows(media_type, clause.target):
                return Choice(media_type, clause.target, clause.parameters.get("pretty") == "1")
    return None


def preferred(accept: str) -> list[Clause]:
    """Return what a client accepts, the best first; what cannot be read is left out."""
    return sorted(
        _clauses(accept), key=lambda one: (-one.quality, one.main_type == "*", one.subtype == "*")
    )


def _clauses(accept: str) -> Iterator[Clause]:
    for part in accept.split(","):
        media_type, *rest = part.split(";")
        main_type, slash, subtype = (text.strip() for text in media_type.partition("/"))
        if main_type == "*" and not slash:
            subtype = "*"
        if not subtype or "/" in subtype:
            continue
        quality, parameters = 1.0, {}
        for parameter in rest:
            name, _, value = (text.strip() for text in parameter.partition("="))
            if not value or "=" in value:
                continue
            if name == "q":
                quality = _quality(value)
            else:
                parameters[name] = value
        yield Clause(main_type, subtype, quality, parameters)


def _quality(text: str) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if math.isfinite(quality) else 0.0
