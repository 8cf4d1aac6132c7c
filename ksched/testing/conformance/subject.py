"""What every check of one run is given."""

from __future__ import annotations

from msgspec import Struct

from ksched.testing.conformance.random_cluster import RandomCluster, random_cluster
from ksched.testing.conformance.report import Finding
from ksched.testing.conformance.target import Target
from ksched.testing.conformance.vocabulary import Vocabulary


class Subject(Struct, frozen=True):
    """A plugin, and the random clusters that it is tried on."""

    target: Target
    seed: int
    nodes: int
    words: Vocabulary = Vocabulary()
    budget_ms: float = 20.0

    @property
    def plugin(self) -> str:
        return self.target.name

    def cluster(self, nodes: int | None = None, pending: int = 24) -> RandomCluster:
        return random_cluster(self.seed, nodes or self.nodes, pending, self.words)

    def finding(self, check: str, fault: str, method: str, text: str, **more: object) -> Finding:
        return Finding(check, fault, self.plugin, method, text, **more)  # type: ignore[arg-type]
