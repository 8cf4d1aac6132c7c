"""Dice for generators of random objects; equal randomness gives equal throws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """A source of choices."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def sometimes(self, percent: int = 50) -> bool:
        return self.random.randrange(100) < percent

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.random.randrange(len(choices))]

    def several(self, make: Callable[[], T], at_most: int, at_least: int = 0) -> list[T]:
        return [make() for _ in range(self.random.randint(at_least, at_most))]
