"""Random device selectors: well-typed ones, ill-typed ones, and some that are no CEL at all."""

from __future__ import annotations

import random
from typing import Any

D = "d.example.com"
DEVICES: list[dict[str, Any]] = [
    {
        "driver": D,
        "allowMultipleAllocations": True,
        "attributes": {
            "name": {"string": "Arc A100-80GB"},
            "index": {"int": 3},
            "healthy": {"bool": True},
            "version": {"version": "1.2.3-rc.1"},
            "o.org/kind": {"string": "gpu"},
        },
        "capacity": {"memory": {"value": "40Gi"}, "o.org/cores": {"value": "2500m"}},
    },
    {
        "driver": "other.example.com",
        "attributes": {
            f"{D}/name": {"string": ""},
            f"{D}/index": {"int": -1},
            "name": {"string": "élan"},
            f"{D}/healthy": {"bool": False},
            f"{D}/version": {"version": "2.0.0"},
        },
        "capacity": {f"{D}/memory": {"value": "0"}},
    },
    {"driver": D, "attributes": {"index": {"string": "3"}, "name": {"int": 7}}},
    {
        "driver": "gpu.nvidia.com",
        "attributes": {
            "type": {"string": "gpu"},
            "productName": {"string": "NVIDIA A100-SXM4-80GB"},
            "index": {"int": 2},
            "gpu.intel.com/family": {"string": "Arc"},
            "gpu.intel.com/sriov": {"bool": True},
            "qat.intel.com/services": {"string": "dc;sym"},
            "dra.net/ifName": {"string": "eth1"},
            "dra.net/rdma": {"bool": False},
            "dra.net/cloudNetwork": {"string": "vpc-x"},
            "tpu.google.com/accelerator": {"string": "tpu-v6e-slice"},
            "dra.cpu/coreType": {"string": "p-core"},
            "resource.kubernetes.io/numaNode": {"int": 0},
            "gpu.amd.com/type": {"string": "amdgpu"},
        },
        "capacity": {
            "memory": {"value": "80Gi"},
            "multiprocessors": {"value": "14"},
            "gpu.intel.com/memory": {"value": "16Gi"},
            "gpu.example.com/memory": {"value": "4095Mi"},
        },
    },
]

_STRINGS = ['"gpu"', '"Arc"', '""', "'a100'", '"3"', '"1.2.3"', '"é"', f'"{D}"', '"40Gi"', '"-"']
_REGEXES = ['"^A.*0$"', '"[0-9]+"', '"(?i)arc"', '"a{2,3}"', '"\\\\d+-\\\\w*"', '"x|y|$"', '"("']
_NUMBERS = ["0", "1", "3", "-1", "7", "9223372036854775807", "-9223372036854775808", "100"]
_DOUBLES = ["0.5", "1.0", "3.0", "-2.25", "1e10"]
_QUANTITIES = ["40Gi", "1", "2500m", "0", "1.5Gi", "10M", "1e3", "x", "-1k"]
_VERSIONS = ["1.2.3", "1.2.3-rc.1", "2.0.0", "1.10.0+b", "1.2", "v1.0.0", "01.2.3"]


class Generator:
    """Expressions from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._variables: list[tuple[str, str]] = []

    def expression(self) -> str:
        depth = self._random.choice([1, 2, 2, 3, 3, 4])
        text = self._bool(depth)
        return self._damaged(text) if self._random.random() < 0.06 else text

    def _damaged(self, text: str) -> str:
        at = self._random.randrange(len(text))
        change = self._random.choice(["drop", "double", "insert"])
        if change == "drop":
            return text[:at] + text[at + 1 :]
        if change == "double":
            return text[:at] + text[at] + text[at:]
        return text[:at] + self._random.choice(["(", ")", "+", "]", ".", "&&", "1"]) + text[at:]

    def _one(self, options: list[str]) -> str:
        return self._random.choice(options)

    def _any(self, depth: int) -> str:
        kinds = [self._bool, self._int, self._string, self._attribute, self._double]
        kinds += [self._quantity, self._version, self._list]
        return self._random.choice(kinds)(depth)

    def _maybe_wrong(self, depth: int, right: str) -> str:
        """The wanted type most of the time."""
        return self._any(depth - 1) if self._random.random() < 0.07 else right

    def _variable(self, kind: str) -> str | None:
        names = [name for name, known in self._variables if known == kind]
        return self._one(names) if names and self._random.random() < 0.6 else None

    def _attribute(self, depth: int) -> str:
        domain = self._one([f'"{D}"', f'"{D}"', '"o.org"', '"nope"', "device.driver"])
        name = self._one(["name", "index", "healthy", "version", "kind", "missing"])
        form = self._random.random()
        if form < 0.7:
            return f"device.attributes[{domain}].{name}"
        if form < 0.85:
            return f'device.attributes[{domain}]["{name}"]'
        return f"device.attributes[{domain}].?{name}.orValue({self._any(0)})"

    def _bool(self, depth: int) -> str:
        if depth <= 0:
            found = self._variable("bool")
            return found or self._one(
                ["true", "false", "device.allowMultipleAllocations", self._attribute(0)]
            )
        text = self._random.choice(
            [self._comparison, self._logic, self._string_test, self._fold, self._library_test]
        )(depth)
        return self._maybe_wrong(depth, text)

    def _comparison(self, depth: int) -> str:
        kind = self._random.choice(
            [self._int, self._string, self._attribute, self._double, self._quantity, self._version]
        )
        left, right = kind(depth - 1), kind(depth - 1)
        if self._random.random() < 0.3:
            right = self._attribute(depth)
        elif self._random.random() < 0.1:
            right = self._any(depth - 1)
        operators = ["==", "!=", "==", "!="]
        if kind in (self._int, self._string, self._double, self._attribute):
            operators += ["<", "<=", ">", ">="]
        return f"{left} {self._one(operators)} {right}"

    def _logic(self, depth: int) -> str:
        form = self._random.random()
        if form < 0.7:
            count = self._random.choice([2, 2, 3])
            operator = self._one([" && ", " || "])
            return "(" + operator.join(self._bool(depth - 1) for _ in range(count)) + ")"
        if form < 0.85:
            return f"!({self._bool(depth - 1)})"
        parts = [self._bool(depth - 1) for _ in range(3)]
        return f"({parts[0]} ? {parts[1]} : {parts[2]})"

    def _string_test(self, depth: int) -> str:
        text = self._string(depth - 1)
        form = self._one(["startsWith", "endsWith", "contains", "matches", "in", "has"])
        if form == "in":
            members = ", ".join(self._string(0) for _ in range(self._random.randrange(4)))
            return f"{text} in [{members}]"
        if form == "has":
            name = self._one(["name", "missing", "index"])
            return f'has(device.attributes["{D}"].{name})'
        other = self._one(_REGEXES) if form == "matches" else self._string(depth - 1)
        return f"{text}.{form}({other})"

    def _fold(self, depth: int) -> str:
        macro = self._one(["all", "exists", "exists_one"])
        name = self._one(["x", "y", "z"])
        if self._random.random() < 0.3:
            over, kind = self._one(["device.attributes", "device.capacity"]), "string"
        else:
            kind = self._one(["int", "string"])
            make = self._int if kind == "int" else self._string
            count = self._random.randrange(4)
            over = f"[{', '.join(make(depth - 1) for _ in range(count))}]"
        self._variables.append((name, kind))
        body = self._bool(depth - 1)
        self._variables.pop()
        return f"{over}.{macro}({name}, {body})"

    def _library_test(self, depth: int) -> str:
        quantity, version = self._quantity(depth - 1), self._version(depth - 1)
        return self._one(
            [
                f"{quantity}.isGreaterThan({self._quantity(depth - 1)})",
                f"{quantity}.compareTo({self._quantity(0)}) >= {self._int(0)}",
                f"{quantity}.isInteger()",
                f"{version}.isLessThan({self._version(depth - 1)})",
                f"{version}.compareTo({self._version(0)}) == {self._int(0)}",
                f"{self._attribute(0)}.isGreaterThan({self._version(0)})",
                f"isQuantity({self._string(0)}) || isSemver({self._string(0)}, true)",
                f"sets.contains({self._list(depth)}, {self._list(depth)})",
                f"{self._list(depth)} == {self._list(depth)}",
                f"{self._list(depth)}.isSorted()",
                f'device.attributes["{D}"].?index.hasValue()',
                f"cel.bind(b, {self._any(depth - 1)}, b == {self._any(0)})",
                f"type({self._any(0)}) == {self._one(['int', 'string', 'bool', 'list'])}",
                f'"{D}" in device.capacity',
            ]
        )

    def _int(self, depth: int) -> str:
        if depth <= 0:
            return self._variable("int") or self._one(_NUMBERS)
        a, b = self._int(depth - 1), self._int(depth - 1)
        text = self._one(
            [
                f"({a} {self._one(['+', '-', '*', '/', '%'])} {b})",
                f"size({self._string(depth - 1)})",
                f"{self._list(depth)}.size()",
                f"int({self._one([self._string(0), self._double(0), a])})",
                f"{self._string(depth - 1)}.indexOf({self._string(0)})",
                f"{self._version(0)}.major()",
                f"sign({self._quantity(0)})",
                f"{self._quantity(0)}.asInteger()",
                f"[{a}, {b}].{self._one(['sum', 'max', 'min'])}()",
                f"({self._bool(depth - 1)} ? {a} : {b})",
                f"-({a})",
            ]
        )
        return self._maybe_wrong(depth, text)

    def _double(self, depth: int) -> str:
        if depth <= 0:
            return self._one(_DOUBLES)
        a, b = self._double(depth - 1), self._double(depth - 1)
        return self._one(
            [f"({a} {self._one(['+', '-', '*', '/'])} {b})", f"double({self._int(0)})"]
        )

    def _string(self, depth: int) -> str:
        if depth <= 0:
            found = self._variable("string")
            return found or self._one([*_STRINGS, "device.driver", self._attribute(0)])
        a, b, n = self._string(depth - 1), self._string(0), self._int(0)
        text = self._one(
            [
                f"({a} + {b})",
                f"{a}.lowerAscii()",
                f"{a}.upperAscii()",
                f"{a}.trim()",
                f"{a}.substring({n})",
                f"{a}.substring(0, {n})",
                f"{a}.charAt({n})",
                f"{a}.replace({b}, {self._string(0)})",
                f"{a}.find({self._one(_REGEXES)})",
                f"{self._strings(depth)}.join({b})",
                f"string({self._any(0)})",
                f"({self._bool(depth - 1)} ? {a} : {b})",
            ]
        )
        return self._maybe_wrong(depth, text)

    def _strings(self, depth: int) -> str:
        return self._one(
            [
                f"{self._string(0)}.split({self._string(0)})",
                f"{self._string(0)}.findAll({self._one(_REGEXES)})",
                f"[{self._string(0)}, {self._string(0)}]",
                f"{self._list(0)}.map(m, string(m))",
            ]
        )

    def _list(self, depth: int) -> str:
        members = [self._int(0) for _ in range(self._random.randrange(4))]
        text = f"[{', '.join(members)}]"
        if depth <= 0:
            return text
        return self._one(
            [
                text,
                f"{text}.map(i, i + {self._int(0)})",
                f"{text}.filter(i, i > {self._int(0)})",
                f"({text} + {text})",
                f"{text}.distinct()",
                f"{text}.reverse()",
                f"{text}.sort()",
                f"lists.range({self._int(0)} % 5)",
                f"{text}.slice(0, {self._int(0)})",
            ]
        )

    def _quantity(self, depth: int) -> str:
        if depth <= 0 or self._random.random() < 0.4:
            return self._one(
                [
                    f'quantity("{self._one(_QUANTITIES)}")',
                    f'device.capacity["{D}"].memory',
                    'device.capacity["o.org"].cores',
                ]
            )
        a, b = self._quantity(depth - 1), self._quantity(0)
        return self._one([f"{a}.add({b})", f"{a}.sub({b})", f"{a}.add({self._int(0)})"])

    def _version(self, depth: int) -> str:
        return self._one(
            [
                f'semver("{self._one(_VERSIONS)}")',
                f'semver("{self._one(_VERSIONS)}", true)',
                f'device.attributes["{D}"].version',
            ]
        )


def expressions(seed: int, count: int) -> list[str]:
    """So many expressions, the same ones for the same seed."""
    generator = Generator(seed)
    return [generator.expression() for _ in range(count)]
