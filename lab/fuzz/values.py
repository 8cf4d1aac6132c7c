"""Values at the edges of what an API server admits."""

from __future__ import annotations

from typing import Any

from lab.chance import Chance

JsonObject = dict[str, Any]

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1

QUANTITIES = (
    "0",
    "1",
    "1m",
    "100m",
    "1u",
    "1n",
    "0.5",
    "1500m",
    "4",
    "1Gi",
    "1.5Gi",
    "1e3",
    "12E6",
    "1e18",
    "7Ei",
    "8Ei",
    "9223372036854775807",
    "9223372036854775806",
    "4611686018427387904",
    str(INT64_MAX // 99),
    str(INT64_MAX // 100),
    str(2**53 + 1),
    "9223372036854775807m",
    "99999999999999999999999",
    "0.000000000000000001",
)
COUNTS = ("0", "1", "4", "1000", "9223372036854775")
"""Of extended resources: an amount whose thousandfold overflows is not admitted."""
RESOURCE_NAMES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu")
EXTENDED = ("example.com/gpu", f"{'d' * 60}.example.com/{'r' * 63}", "a.b/c", "x.y/0")
LABEL_KEYS = (
    "zone",
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "a",
    "Z.z-_9",
    f"{'.'.join('p' * 62 for _ in range(4))}/{'k' * 63}",
)
LABEL_VALUES = ("", "a", "b", "1", "-".join("v" * 31), "v" * 63, "9223372036854775808", "007")
TEXTS = ("", "a", "ż" * 100, "\u202ertl", "\U0001f600" * 50, "line\nline", "%s%n", "\x7f", "{}")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
NAMESPACES = ("default", "tenant", "n" * 63)


class EdgeValues(Chance):
    """Mostly small numbers of things, sometimes many, seldom as many as fit into a request."""

    largest = 4000
    """The most elements of one list or map."""

    def count(self, usual: int = 2) -> int:
        dice = self.random.randrange(1000)
        if dice < 950:
            return self.random.randint(0, usual)
        return self.random.randint(0, 60 if dice < 990 else self.largest)

    def key(self) -> str:
        if self.sometimes(85):
            return self.one_of(LABEL_KEYS)
        return f"{self.one_of(('', 'x.io/'))}k{self.random.randrange(10**6)}"

    def value(self) -> str:
        if self.sometimes(85):
            return self.one_of(LABEL_VALUES)
        return f"v{self.random.randrange(10**6)}"

    def labels(self, usual: int = 3) -> dict[str, str]:
        return {self._nth(self.key(), n): self.value() for n in range(self.count(usual))}

    def _nth(self, key: str, number: int) -> str:
        return key if number < 6 else f"k{number}"

    def quantities(self, usual: int = 2) -> dict[str, str]:
        amounts = {
            name: self.one_of(QUANTITIES)
            for name in ("cpu", "memory", "ephemeral-storage")
            if self.sometimes(60)
        }
        # Beyond a thousand names that nodes offer ksched differs on purpose (docs/deviations.md).
        for number in range(min(self.count(usual), 900)):
            name = self.one_of(EXTENDED) if number < 3 else f"many.io/r{number}"
            amounts[name] = self.one_of(COUNTS)
        return amounts

    def label_selector(self) -> JsonObject | None:
        if self.sometimes(10):
            return None
        selector: JsonObject = {"matchLabels": self.labels(1)}
        expressions = [self.expression(("In", "NotIn", "Exists", "DoesNotExist"))]
        return selector | ({"matchExpressions": expressions} if self.sometimes(30) else {})

    def expression(self, operators: tuple[str, ...]) -> JsonObject:
        operator = self.one_of(operators)
        requirement: JsonObject = {"key": self.key(), "operator": operator}
        if operator in ("In", "NotIn"):
            requirement["values"] = [self.value() for _ in range(1 + self.count(2))]
        elif operator in ("Gt", "Lt"):
            requirement["values"] = [self.one_of(("0", "9223372036854775807", "1"))]
        return requirement
