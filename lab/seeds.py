"""Which random cases a run decides."""

from __future__ import annotations

import os
from collections.abc import Mapping


def asked_seeds(default: int, environ: Mapping[str, str] = os.environ) -> list[int]:
    """The seeds in the variable SEEDS, or the first ``default``.

    ``200`` means the first two hundred, ``17,40`` just these, ``1000-1049`` from first to last.
    """
    asked = environ.get("SEEDS", "")
    if asked.isdecimal() or not asked:
        return list(range(int(asked or default)))
    seeds: list[int] = []
    for part in asked.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds
