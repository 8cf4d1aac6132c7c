"""Manifests: what the story gives to the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ksched.apiserver.kubelet import RUN_SECONDS_ANNOTATION
from ksched.testing.builders import PodBuilder, make_pod

Manifest = dict[str, Any]

CRITICAL: Final = "critical"
BULK: Final = "bulk"
PRIORITIES: Final = {CRITICAL: 100_000, BULK: -10}
NAMESPACES: Final = ("shop", "data", "ml")


def pod(app: str, namespace: str, cpu_millis: int, gib_per_cpu: float = 2.0) -> PodBuilder:
    """A pod of an application; alone, or as the template of many."""
    memory_mib = max(16, round(cpu_millis * gib_per_cpu))
    return (
        make_pod(app, namespace).label(app=app).req(cpu=f"{cpu_millis}m", memory=f"{memory_mib}Mi")
    )


def asks_for(builder: PodBuilder, resource: str, amount: int) -> PodBuilder:
    """Ask for an extended resource, whose limit must equal the request."""
    one = builder.req({resource: str(amount)}).to_dict()
    one["spec"]["containers"][0]["resources"]["limits"] = {resource: str(amount)}
    return PodBuilder(one)


def with_priority(builder: PodBuilder, name: str) -> PodBuilder:
    return builder.merge({"spec": {"priorityClassName": name}})


def runs_for(builder: PodBuilder, seconds: float) -> PodBuilder:
    """A pod that ends by itself; the simulated kubelet sees to it."""
    return builder.annotation({RUN_SECONDS_ANNOTATION: f"{seconds:g}"})


def with_device(builder: PodBuilder, template: str) -> PodBuilder:
    """A pod with a claim of its own, made from a template."""
    claim = {"name": "device", "resourceClaimTemplateName": template}
    return builder.merge({"spec": {"resourceClaims": [claim]}})


def claim_template(name: str, space: str, device_class: str) -> Manifest:
    """A template of claims for one device of a class."""
    request = {"name": "device", "exactly": {"deviceClassName": device_class}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": space},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def device_class(driver: str) -> Manifest:
    """All devices of a driver."""
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": {"selectors": [selector]},
    }


def in_group(builder: PodBuilder, name: str) -> PodBuilder:
    """A member of a PodGroup."""
    return builder.merge({"spec": {"schedulingGroup": {"podGroupName": name}}})


def pod_group(name: str, space: str, minimum: int) -> Manifest:
    """So many of its pods start together, or none does."""
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": space},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }


def deployment(builder: PodBuilder, replicas: int) -> Manifest:
    """A Deployment of a pod; it has the pod's name."""
    one = builder.to_dict()
    name, labels = one["metadata"]["name"], one["metadata"]["labels"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": one["metadata"]["namespace"]},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": labels["app"]}},
            "template": _template(one),
        },
    }


def job(builder: PodBuilder, pods: int) -> Manifest:
    """A Job that runs so many pods at once."""
    one = builder.to_dict()
    template = _template(one)
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": one["metadata"]["name"], "namespace": one["metadata"]["namespace"]},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def namespace(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def priority_class(name: str, value: int) -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _template(one: Mapping[str, Any]) -> Manifest:
    metadata = one["metadata"]
    kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    return {"metadata": kept, "spec": dict(one["spec"])}
