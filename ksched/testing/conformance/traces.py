"""Where in a plugin's own data a pod, or the account of a node, can be found."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Set
from typing import Any, Final

from ksched.cache.pod_info import PodInfo

MAX_DEPTH: Final = 6
MAX_ITEMS: Final = 20_000
Path = tuple[str, ...]


def traces(plugin: Any, pod: PodInfo, node_name: str) -> dict[str, object]:
    """By place, as it would be written: what the plugin keeps under, or of, a pod or a node."""
    names = {pod.uid, pod.key, pod.name, node_name}
    found: dict[str, object] = {}
    for count, (path, leaf) in enumerate(_leaves(plugin, type(plugin).__module__, (), 0)):
        if count >= MAX_ITEMS:
            break
        if names.intersection(path) or (isinstance(leaf, str) and leaf in names):
            found[_written(path)] = leaf
    return found


def _leaves(value: Any, module: str, path: Path, depth: int) -> Iterator[tuple[Path, object]]:
    if isinstance(value, str | int | float | bool | bytes | None):
        yield path, value
    elif isinstance(value, PodInfo):
        yield path, value.uid
    elif depth >= MAX_DEPTH:
        return
    elif isinstance(value, Mapping):
        for key, one in list(value.items()):
            yield from _leaves(one, module, (*path, _key(key)), depth + 1)
    elif isinstance(value, list | tuple | deque):
        for one in list(value):
            yield from _leaves(one, module, (*path, "*"), depth + 1)
    elif isinstance(value, Set):
        for one in list(value):
            yield (*path, _key(one)), True
    elif depth == 0 or _is_of(value, module):
        for name, one in _attributes(value):
            yield from _leaves(one, module, (*path, f".{name}"), depth + 1)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from list(getattr(value, "__dict__", {}).items())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name != "__dict__" and hasattr(value, name):
                yield name, getattr(value, name)


def _is_of(value: object, module: str) -> bool:
    """Whether a value is the plugin's own and not something that it was given."""
    package = module.rpartition(".")[0] or module
    own = type(value).__module__
    return own in (module, package) or own.startswith(f"{package}.")


def _key(key: Hashable) -> str:
    return key.uid if isinstance(key, PodInfo) else str(key)


def _written(path: Path) -> str:
    parts = [part if part.startswith(".") else f"[{part}]" for part in path]
    return "self" + "".join(parts)
