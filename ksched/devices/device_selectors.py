"""CEL selectors of devices (``k8s.io/dynamic-resource-allocation/cel``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from ksched.cel import CompileError, CostExceeded, EvaluationError
from ksched.cel import static_types as types
from ksched.cel.quantities import QUANTITY, parse_quantity
from ksched.cel.syntax_tree import Call, Ident, Literal, Node, Select
from ksched.cel.values import DefaultMap, OpaqueValue, OptionalValue, Value, type_name
from ksched.cel.versions import parse_semver

if TYPE_CHECKING:
    from ksched.cel import Environment, Program

COST_LIMIT = 1_000_000
"""``CELSelectorExpressionMaxCost``"""
MAX_STEPS_INLINE = 5_000
"""Steps (about 2 ms) up to which a selector may be evaluated on an event loop."""
MAX_LENGTH_INLINE = 250
"""Characters (about 5 ms) up to which a selector may be compiled on an event loop."""
_ARITHMETIC_LENGTH, _CALL_LENGTH = 6, 15
"""Characters that take as long as an arithmetic operator, or as a call or macro."""
_DEVICE = "kubernetes.DRADevice"


class AttributeValue(Protocol):
    """One attribute of a device: at most one field is set."""

    @property
    def int_value(self) -> int | None: ...
    @property
    def bool_value(self) -> bool | None: ...
    @property
    def string_value(self) -> str | None: ...
    @property
    def version_value(self) -> str | None: ...


class CapacityValue(Protocol):
    """One capacity of a device."""

    @property
    def value(self) -> str | int | float: ...


class SelectableDevice(Protocol):
    """The fields of a device that a selector can read, besides its driver."""

    @property
    def attributes(self) -> Mapping[str, AttributeValue]: ...
    @property
    def capacity(self) -> Mapping[str, CapacityValue]: ...
    @property
    def allow_multiple_allocations(self) -> bool | None: ...


class DeviceView:
    """The variable ``device`` of a selector; built once per device and passed to all selectors.

    A device that cannot be converted (an attribute without a value, an invalid version) makes every
    selector fail, even ``true``, so ``problem`` is raised by ``DeviceSelector.matches``.
    """

    __slots__ = ("problem", "variable")

    def __init__(self, driver: str, device: SelectableDevice) -> None:
        self.problem: str | None = None
        attributes: dict[str, dict[str, Any]] = {}
        capacity: dict[str, dict[str, Any]] = {}
        try:
            for name, attribute in device.attributes.items():
                domain, identifier = _qualified(name, driver)
                attributes.setdefault(domain, {})[identifier] = _attribute(name, attribute)
        except EvaluationError as error:
            self.problem = str(error)
        for name, amount in device.capacity.items():
            domain, identifier = _qualified(name, driver)
            quantity = parse_quantity(str(amount.value))
            capacity.setdefault(domain, {})[identifier] = quantity
        self.variable: dict[str, Any] = {
            "driver": driver,
            "allowMultipleAllocations": bool(device.allow_multiple_allocations),
            "attributes": DefaultMap(attributes, {}),
            "capacity": DefaultMap(capacity, {}),
        }


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, identifier = name.partition("/")
    return (domain, identifier) if slash else (driver, name)


def _attribute(name: str, attribute: AttributeValue) -> int | bool | str | object:
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.string_value is not None:
        return attribute.string_value
    if attribute.version_value is None:
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    try:
        return parse_semver(attribute.version_value)
    except EvaluationError as error:
        message = f"attribute {name}: parse semantic version: {error}"
        raise EvaluationError(message) from None


@dataclass(frozen=True, slots=True)
class Reads:
    """The fields that a selector reads: its result is the same for devices with equal ones."""

    everything: bool = False
    driver: bool = False
    allow_multiple_allocations: bool = False
    attributes: frozenset[tuple[str, str]] = frozenset()
    """Pairs of domain and identifier."""
    capacity: frozenset[tuple[str, str]] = frozenset()


class DeviceSelector:
    """A compiled selector."""

    def __init__(self, expression: str, program: Program) -> None:
        self.expression = expression
        self.reads = _reads(program.root)
        self.root = program.root
        self.is_expensive = program.work is None or program.work > MAX_STEPS_INLINE
        """Whether to evaluate it in a thread: up to the cost limit it may take seconds."""
        self._program = program

    def what_it_reads(self, device: DeviceView) -> Hashable:
        """Equal for devices with the same results; ``None`` if it reads everything."""
        reads, variable = self.reads, device.variable
        if reads.everything or device.problem is not None:
            return None
        return (
            variable["driver"] if reads.driver else "",
            reads.allow_multiple_allocations and variable["allowMultipleAllocations"],
            *(
                _identity(variable[kind][domain].get(identifier))
                for kind, pairs in (("attributes", reads.attributes), ("capacity", reads.capacity))
                for domain, identifier in pairs
            ),
        )

    def matches(self, device: DeviceView) -> bool:
        """Whether a device is selected; raises ``EvaluationError`` with upstream's message."""
        if device.problem is not None:
            raise EvaluationError(device.problem)
        try:
            value = self._program.evaluate(device.variable)
        except CostExceeded as error:
            raise EvaluationError(str(error)) from None
        if type(value) is OptionalValue and value.present:
            value = value.value
        if value is True or value is False:
            return value
        raise EvaluationError(_not_a_bool(value))


def _identity(value: Value) -> Hashable:
    if isinstance(value, OpaqueValue):
        names: Iterable[str] = type(value).__slots__
        return type(value), tuple(getattr(value, name) for name in names)
    return type(value), value


def is_expensive_to_compile(expression: str) -> bool:
    """Whether to compile an expression in a thread: it or a pattern in it may be long."""
    length = len(expression)
    if length <= MAX_LENGTH_INLINE:
        length += _ARITHMETIC_LENGTH * sum(map(expression.count, "+-*/%"))
        length += _CALL_LENGTH * expression.count("(")
    return length > MAX_LENGTH_INLINE or "{" in expression or "\\" in expression


def compile_device_selector(expression: str, *, consumable_capacity: bool = True) -> DeviceSelector:
    """Compile a selector; raises ``CompileError`` with upstream's message."""
    checked = device_environment(consumable_capacity).check(expression)
    if checked.type not in (types.BOOL, types.ANY):
        message = f"must evaluate to bool or the unknown type, not {checked.type}"
        raise CompileError(message)
    return DeviceSelector(expression, checked.plan(COST_LIMIT))


@cache
def device_environment(consumable_capacity: bool) -> Environment:
    # The compiler is loaded with the first selector: most clusters have none.
    from ksched.cel import Environment, kubernetes_library

    fields = {
        "driver": types.STRING,
        "attributes": types.map_of(types.STRING, types.map_of(types.STRING, types.ANY)),
        "capacity": types.map_of(types.STRING, types.map_of(types.STRING, QUANTITY)),
    }
    if consumable_capacity:
        fields["allowMultipleAllocations"] = types.BOOL
    return Environment(kubernetes_library(), {"device": types.struct(_DEVICE)}, {_DEVICE: fields})


_CONVERSION_PROBLEMS = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
    "uint": "unsupported type conversion from 'uint' to bool",
    "double": "type conversion error from Double to 'bool'",
    "bytes": "type conversion error from Bytes to 'bool'",
    "list": "type conversion error from list to 'bool'",
    "map": "type conversion error from map to 'bool'",
    "type": "type conversion not supported for 'type'",
    "google.protobuf.Duration": "type conversion error from 'Duration' to 'bool'",
    "google.protobuf.Timestamp": "type conversion error from 'Timestamp' to 'bool'",
    "optional_type": "optional.none() dereference",
    "kubernetes.Quantity": "type conversion error from 'Quantity' to 'bool'",
    "kubernetes.Semver": "type conversion error from 'Semver' to 'bool'",
}


def _not_a_bool(value: object) -> str:
    name = type_name(value)
    problem = _CONVERSION_PROBLEMS.get(name, f"type conversion error from '{name}' to 'bool'")
    return f"CEL result of type {name} could not be converted to bool: {problem}"


def _reads(root: Node) -> Reads:
    """Collect constant paths below ``device``; any other use of it reads everything."""
    driver = multiple = False
    pairs: dict[str, set[tuple[str, str]]] = {"attributes": set(), "capacity": set()}
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        path = _device_path(node)
        if path is None:
            if isinstance(node, Ident) and node.name.removeprefix(".") == "device":
                return Reads(everything=True)
            stack.extend(node.children())
        elif path[0] == "driver":
            driver = True
        elif path[0] == "allowMultipleAllocations":
            multiple = True
        elif len(path) >= 3 and path[0] in pairs:
            pairs[path[0]].add((path[1], path[2]))
        else:
            return Reads(everything=True)
    return Reads(
        driver=driver,
        allow_multiple_allocations=multiple,
        attributes=frozenset(pairs["attributes"]),
        capacity=frozenset(pairs["capacity"]),
    )


def _device_path(node: Node) -> list[str] | None:
    """Return the constant keys of a path like ``device.attributes["a"].b``, optional or not."""
    keys: list[str] = []
    while not isinstance(node, Ident):
        if isinstance(node, Select):
            keys.append(node.field)
            node = node.operand
        elif isinstance(node, Call) and node.function in ("_[_]", "_[?_]", "_?._"):
            key = node.args[1]
            if not isinstance(key, Literal) or type(key.value) is not str:
                return None
            keys.append(key.value)
            node = node.args[0]
        else:
            return None
    return keys[::-1] if node.name.removeprefix(".") == "device" and keys else None
