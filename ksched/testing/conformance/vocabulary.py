"""Label keys, annotations and values that a plugin reads, found in its source.

A random cluster has no ``example.com/change-freeze``, so a plugin that reads it would return the
same for everything. The texts in the plugin's own module that may be a label's key or
value are put on random nodes and pods.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from typing import Any, Final

from msgspec import Struct

from ksched.configuration.extension_points import LIFECYCLE, MAY_BE_ASYNC
from ksched.framework.runtime.plugin_contract import SETTINGS

MAX_WORDS: Final = 16
_KEY: Final = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")
PLAIN_VALUES: Final = ("true", "false", "1", "2", "3")


class Vocabulary(Struct, frozen=True):
    """What to put on nodes and pods beside the usual."""

    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = PLAIN_VALUES

    @property
    def prefixed(self) -> tuple[str, ...]:
        """Keys that may name a resource or a taint as well."""
        return tuple(key for key in self.keys if "/" in key and "kubernetes.io/" not in key)


def vocabulary_of(plugin: Any) -> Vocabulary:
    """Read the module in which a plugin's class is; empty if it has no source."""
    module = sys.modules.get(type(plugin).__module__)
    try:
        tree = ast.parse(inspect.getsource(module)) if module else None
    except (OSError, TypeError, SyntaxError):
        tree = None
    if tree is None:
        return Vocabulary()
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    known = {*MAY_BE_ASYNC, *LIFECYCLE, *SETTINGS}
    words = [text for text in dict.fromkeys(texts) if _KEY.fullmatch(text) and text not in known]
    # A word with a prefix is a key for certain; the others may be keys or values.
    words.sort(key=lambda word: "/" not in word)
    keys = tuple(words[:MAX_WORDS])
    values = tuple(word for word in keys if "/" not in word)
    return Vocabulary(keys, (*PLAIN_VALUES, *values))
