"""Pods that do not exist yet."""

from __future__ import annotations

import pytest

from ksched.errors import ConfigError
from ksched.explain.manifest import read_manifest
from ksched.testing import cluster

POD = """\
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  priorityClassName: high
  containers: [{name: c, resources: {limits: {cpu: 2}, requests: {memory: 1Gi}}}]
"""
DEPLOYMENT = """\
kind: Service
metadata: {name: web}
---
kind: Deployment
metadata: {name: shop, namespace: prod}
spec:
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: c}]}
"""


def priority_class(name, value, *, is_default=False):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "globalDefault": is_default,
    }


@pytest.fixture
def manifest(tmp_path):
    def write(text):
        path = tmp_path / "pod.yaml"
        path.write_text(text)
        return str(path)

    return write


async def test_a_pod_gets_its_priority_and_requests_as_if_it_was_admitted(manifest):
    async with cluster() as c:
        await c.create(priority_class("high", 100), priority_class("usual", 7, is_default=True))
        pod = await read_manifest(manifest(POD), "test", c.client)
        other = await read_manifest(manifest(DEPLOYMENT), "test", c.client)
    assert (pod.metadata.key, pod.spec.priority, pod.metadata.uid != "") == ("test/web", 100, True)
    assert pod.spec.containers[0].resources.requests == {"cpu": 2, "memory": "1Gi"}
    assert (other.metadata.key, other.metadata.labels) == ("prod/shop", {"app": "shop"})
    assert other.spec.priority == 7


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("kind: Service", "has Service, wanted a Pod", id="no pod"),
        pytest.param("", "has nothing, wanted a Pod", id="empty"),
        pytest.param("{", "cannot read", id="not YAML"),
        pytest.param(POD, "no PriorityClass is named high", id="class"),
    ],
)
async def test_what_cannot_be_used_is_named(manifest, text, problem):
    async with cluster() as c:
        with pytest.raises(ConfigError, match=problem):
            await read_manifest(manifest(text), "test", c.client)
