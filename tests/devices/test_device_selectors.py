"""The device environment: what a selector sees of a device, and what it reads of it."""

from __future__ import annotations

import pytest

from ksched.cel import CompileError, EvaluationError
from ksched.devices.device_selectors import (
    DeviceView,
    Reads,
    compile_device_selector,
    is_expensive_to_compile,
)
from lab.cel_twin import Attribute, Capacity, Device, view

DRIVER = "d.example.com"


def device(**attributes: Attribute) -> DeviceView:
    return DeviceView(DRIVER, Device(attributes, {"memory": Capacity("4Gi")}, None))


def string(value: str) -> Attribute:
    return Attribute(None, None, value, None)


def test_unqualified_names_are_in_the_driver_s_domain() -> None:
    selector = compile_device_selector(f'device.attributes["{DRIVER}"].a == "x"')
    assert selector.matches(device(a=string("x")))
    qualified = {f"{DRIVER}/a": {"string": "x"}}
    assert selector.matches(view({"driver": "other", "attributes": qualified}))
    assert not selector.matches(device(a=string("y")))


def test_an_unknown_domain_is_empty_and_an_unknown_name_an_error() -> None:
    assert compile_device_selector('device.attributes["no"].size() == 0').matches(device())
    with pytest.raises(EvaluationError, match=r"^no such key: a$"):
        compile_device_selector('device.attributes["no"].a == 1').matches(device())


@pytest.mark.parametrize(
    ("attribute", "problem"),
    [
        (Attribute(None, None, None, None), "attribute a: unsupported attribute value"),
        (
            Attribute(None, None, None, "1.2"),
            "attribute a: parse semantic version: No Major.Minor.Patch elements found",
        ),
    ],
)
def test_a_device_that_cannot_be_seen_fails_every_selector(
    attribute: Attribute, problem: str
) -> None:
    with pytest.raises(EvaluationError) as raised:
        compile_device_selector("true").matches(device(a=attribute))
    assert str(raised.value) == problem


def test_shared_devices_are_a_field_of_their_gate() -> None:
    expression = "device.allowMultipleAllocations"
    assert not compile_device_selector(expression).matches(device())
    with pytest.raises(CompileError, match="undefined field 'allowMultipleAllocations'"):
        compile_device_selector(expression, consumable_capacity=False)


def test_a_selector_must_be_a_bool() -> None:
    with pytest.raises(CompileError, match="must evaluate to bool or the unknown type, not int"):
        compile_device_selector("1")


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ("true", Reads()),
        ('device.driver == "x"', Reads(driver=True)),
        ("device.allowMultipleAllocations", Reads(allow_multiple_allocations=True)),
        (
            'device.attributes["a"].b == 1 || has(device.attributes.c.d)',
            Reads(attributes=frozenset({("a", "b"), ("c", "d")})),
        ),
        (
            'device.capacity["a"].?b.hasValue() && device.attributes[?"a"]["b"].hasValue()',
            Reads(attributes=frozenset({("a", "b")}), capacity=frozenset({("a", "b")})),
        ),
        ("device.attributes.all(d, true)", Reads(everything=True)),
        ("device.attributes[device.driver].a", Reads(everything=True)),
        ("cel.bind(d, device, d.driver == 'x')", Reads(everything=True)),
        ('cel.bind(a, device.attributes["a"], a.b)', Reads(everything=True)),
    ],
)
def test_reads(expression: str, reads: Reads) -> None:
    assert compile_device_selector(expression).reads == reads


@pytest.mark.parametrize(
    ("expression", "is_expensive"),
    [
        ('device.driver == "gpu.example.com" && device.attributes["a"].type == "gpu"', False),
        ('device.attributes["a"].name.lowerAscii().matches("^.*a100.*$")', False),
        ('device.capacity["a"].memory.compareTo(quantity("40Gi")) >= 0', False),
        ('device.attributes["a"].services == "x" || ' * 100 + "false", False),
        ('cel.bind(x, device.attributes["a"], has(x.b) && x.b in ["1", "2"])', False),
        ('device.attributes.exists(d, d == "a")', False),
        ("device.attributes.exists(d, device.attributes.exists(e, d < e))", True),
        ("lists.range(10000).all(x, x >= 0)", True),
        ("device.driver.matches('" + "a*" * 1000 + "b')", True),
        ("device.driver.matches('(a{500}){10}')", True),
        ("device.driver.matches(device.driver)", True),
        ("optional.of(1)" + ".optMap(x, x)" * 20 + ".hasValue()", True),
        (f"{list(range(200))}.all(x, {list(range(200))}.all(y, x != y))", True),
        (f"sets.contains({list(range(500))}, {list(range(500))})", True),
    ],
)
def test_what_may_take_long_is_expensive(expression: str, is_expensive: bool) -> None:
    assert compile_device_selector(expression).is_expensive == is_expensive


@pytest.mark.parametrize(
    ("expression", "is_expensive"),
    [
        ('device.attributes["a"].name.lowerAscii().matches("^.*a100.*$")', False),
        ("device.driver.matches('(a{500}){10}')", True),
        (r"device.driver.matches('(a\x7b500\x7d)\x7b10\x7d')", True),
        ("false || " * 500 + "true", True),
    ],
)
def test_what_may_take_long_to_compile_is_expensive(expression: str, is_expensive: bool) -> None:
    assert is_expensive_to_compile(expression) == is_expensive
