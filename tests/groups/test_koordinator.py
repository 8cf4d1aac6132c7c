"""Koordinator's groups, by label and PodGroup or by annotations alone.

Covers ``ksched.groups.dialects.koordinator``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from ksched.groups.dialects import koordinator
from ksched.testing import Cluster, PodBuilder, cluster, custom_resource_definition, make_pod
from lab.gangs import configured


@asynccontextmanager
async def koordinator_cluster(nodes: int = 2) -> AsyncIterator[Cluster]:
    definition = custom_resource_definition(koordinator.KIND)
    definition["spec"]["versions"][0]["subresources"] = {"status": {}}
    async with cluster(nodes, config=configured("scheduler-plugins"), start=False) as c:
        await c.create(definition)
        async with c.scheduler:
            yield c


def annotated(number: int, **more: str) -> PodBuilder:
    marks = {koordinator.NAME: "gang", koordinator.MINIMUM: "2", **more}
    return make_pod(f"gang-{number}").req(cpu="1").annotation(marks)


async def test_a_group_of_annotations_is_placed_whole() -> None:
    async with koordinator_cluster() as c:
        await c.create(annotated(0))
        await c.advance(5)
        assert c.bound("gang-0") is None
        await c.create(annotated(1))
        await c.settle()
        assert c.bound("gang-0") is not None
        assert c.bound("gang-1") is not None


async def test_members_that_are_announced_are_waited_for() -> None:
    async with koordinator_cluster() as c:
        total = {koordinator.TOTAL: "3"}
        await c.create(annotated(0, **total), annotated(1, **total))
        await c.advance(5)
        assert c.bound("gang-0") is None
        assert c.message("gang-0").endswith("3 are announced")
        await c.create(annotated(2, **total))
        await c.advance(2)
        assert all(c.bound(f"gang-{number}") for number in range(3))


async def test_a_podgroup_is_read_and_written() -> None:
    async with koordinator_cluster() as c:
        group: dict[str, Any] = {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "gang", "namespace": "default"},
            "spec": {"minMember": 2},
        }
        await c.create(group)
        pods = [make_pod(f"gang-{n}").label({koordinator.LABEL: "gang"}) for n in range(2)]
        await c.create(pods[0])
        await c.advance(5)
        assert c.bound("gang-0") is None
        await c.create(pods[1])
        await c.advance(1)
        assert c.bound("gang-0") is not None
        body = await c.client.get(koordinator.KIND.resource, "default", "gang")
        told = msgspec.json.decode(body)["status"]
        assert (told["phase"], told["scheduled"]) == ("Scheduled", 2)


@pytest.mark.parametrize(
    ("minimum", "total", "timeout", "problem"),
    [
        (None, None, None, "min-available: got nothing"),
        ("0", None, None, "min-available: got '0', wanted a number of at least 1"),
        ("2", "x", None, "total-number: got 'x'"),
        ("2", None, "soon", "waiting-time: "),
    ],
)
def test_annotations_that_make_no_sense(
    minimum: str | None, total: str | None, timeout: str | None, problem: str
) -> None:
    assert problem in koordinator.read_terms(minimum, total, timeout).problem


def test_the_terms_in_the_annotations() -> None:
    terms = koordinator.read_terms("2", "5", "90s")
    assert (terms.minimum, terms.expected, terms.timeout_seconds) == (2, 5, 90.0)
    assert koordinator.read_terms("2", None, None).timeout_seconds == 600.0
