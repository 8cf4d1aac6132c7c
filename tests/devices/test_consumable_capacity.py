from __future__ import annotations

from typing import Any

import pytest

from ksched.api.quantity import to_nanos
from ksched.devices.consumable_capacity import binary_quantity, consumed_capacity
from ksched.devices.slices import DeviceShape
from ksched.testing.device_builders import make_slice

RANGE = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "512Mi"}}
VALUES = {"default": "1Gi", "validValues": ["1Gi", "2Gi", "4Gi"]}


def shape(policy: Any = None) -> DeviceShape:
    capacity = {"value": "16Gi", **({"requestPolicy": policy} if policy else {})}
    slices = make_slice("n1").device("d", capacity={"memory": capacity}).obj()
    return DeviceShape("x", slices.spec.devices[0])


@pytest.mark.parametrize(
    ("policy", "asked", "wanted"),
    [
        (RANGE, "1500Mi", "1536Mi"),
        (RANGE, "1G", "1Gi"),
        (RANGE, "512Mi", "1Gi"),
        (RANGE, "8Gi", "8Gi"),
        (RANGE, "9Gi", None),
        (RANGE, None, "1Gi"),
        (VALUES, "1500Mi", "2Gi"),
        (VALUES, "5Gi", None),
        (None, "3Gi", "3Gi"),
        (None, "17Gi", None),
        (None, None, "16Gi"),
    ],
)
def test_what_a_request_consumes(policy: Any, asked: str | None, wanted: str | None) -> None:
    requested = {} if asked is None else {"memory": (asked, to_nanos(asked))}
    got = consumed_capacity(requested, shape(policy))
    assert (None if got is None else got["memory"][0]) == wanted


def test_what_is_in_use_counts() -> None:
    asked = {"memory": ("8Gi", to_nanos("8Gi"))}
    assert consumed_capacity(asked, shape(), {"memory": to_nanos("8Gi")}) is not None
    used = ({"memory": to_nanos("4Gi")}, {"memory": to_nanos("5Gi")})
    assert consumed_capacity(asked, shape(), *used) is None


def test_a_capacity_that_the_device_does_not_have() -> None:
    assert consumed_capacity({"x": ("1", to_nanos("1"))}, shape()) is None


@pytest.mark.parametrize(
    ("units", "text"),
    [(0, "0"), (1000, "1000"), (1024, "1Ki"), (1536 << 20, "1536Mi"), (1 << 30, "1Gi")],
)
def test_binary_quantities(units: int, text: str) -> None:
    assert binary_quantity(units) == text
