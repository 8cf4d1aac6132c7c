"""The changes to try, as they are written on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ksched.errors import ConfigError

_WORDS: Final = {
    "deployment": ("deployments", "deploy"),
    "statefulset": ("statefulsets", "sts"),
    "replicaset": ("replicasets", "rs"),
    "replicationcontroller": ("replicationcontrollers", "rc"),
}
_KIND_OF: Final = {word: kind for kind, words in _WORDS.items() for word in (kind, *words)}
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SCALE: Final = re.compile(r"([a-z]+)/([^/=]+)=([0-9]+)")
_TAINT: Final = re.compile(r"([^=:]+)(?:=([^:]*))?(?::([A-Za-z]+))?")


class AddNodes(Struct, frozen=True):
    """Add nodes with the labels, taints and allocatable resources of an existing one."""

    count: int
    like: str

    def __str__(self) -> str:
        noun = "node" if self.count == 1 else "nodes"
        return f"add {self.count} {noun} like {self.like}"


class Scale(Struct, frozen=True):
    """Scale a workload to a number of replicas; ``kind`` is in the singular, without capitals."""

    kind: str
    namespace: str
    name: str
    replicas: int

    def __str__(self) -> str:
        return f"scale {self.kind}/{self.name} in {self.namespace} to {self.replicas}"


class RemoveTaint(Struct, frozen=True):
    """Remove taints of a key; without value, effect or nodes: of any."""

    key: str
    value: str | None = None
    effect: str = ""
    nodes: tuple[str, ...] = ()

    @property
    def taint(self) -> str:
        text = self.key if self.value is None else f"{self.key}={self.value}"
        return f"{text}:{self.effect}" if self.effect else text

    def __str__(self) -> str:
        return f"remove taint {self.taint} from {', '.join(self.nodes) or 'every node'}"


class Changes(Struct, frozen=True):
    """All changes to try at once, in the order of the fields."""

    add_nodes: AddNodes | None = None
    remove_taints: tuple[RemoveTaint, ...] = ()
    drain: tuple[str, ...] = ()
    scale: tuple[Scale, ...] = ()

    def sentences(self) -> list[str]:
        drain = [f"drain {', '.join(self.drain)}"] if self.drain else []
        add = [self.add_nodes] if self.add_nodes else []
        return [*map(str, add), *map(str, self.remove_taints), *drain, *map(str, self.scale)]


def parse_scale(text: str, namespace: str) -> Scale:
    """Read ``deployment/NAME=REPLICAS``; raises ``ConfigError``."""
    found = _SCALE.fullmatch(text)
    kind = _KIND_OF.get(found[1]) if found else None
    if found is None or kind is None:
        wanted = "wanted deployment/NAME=REPLICAS (or statefulset, replicaset)"
        raise ConfigError([f"--scale: got {text}, {wanted}"])
    return Scale(kind, namespace, found[2], int(found[3]))


def parse_taint(words: Sequence[str]) -> RemoveTaint:
    """Read ``KEY[=VALUE][:EFFECT]`` and the names of nodes; raises ``ConfigError``."""
    text, *nodes = words
    found = _TAINT.fullmatch(text.removesuffix("-"))
    if found is None or (found[3] and found[3] not in _EFFECTS):
        effects = ", ".join(_EFFECTS)
        raise ConfigError([f"--remove-taint: got {text}, wanted KEY[=VALUE][:EFFECT] ({effects})"])
    return RemoveTaint(found[1], found[2], found[3] or "", tuple(nodes))
