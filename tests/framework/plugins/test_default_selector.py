"""plugins/helper/spread.go: DefaultSelector."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ksched.api.objects import ReplicaSet, ReplicationController, Service, StatefulSet
from ksched.cache.listers import Listers
from ksched.framework.plugins.default_selector import DefaultSelectors
from ksched.testing.builders import PodBuilder, make_pod
from ksched.testing.plugin_runner import PluginBench

META = {"name": "web", "namespace": "default"}
KINDS: dict[str, Any] = {
    "Service": Service,
    "ReplicationController": ReplicationController,
    "ReplicaSet": ReplicaSet,
    "StatefulSet": StatefulSet,
}
POD = make_pod().label(app="web", tier="1")


class Cluster:
    def __init__(self) -> None:
        self.listers = Listers()
        self.selectors = DefaultSelectors(self.listers)
        self._bench = PluginBench([])

    def put(self, kind: str, selector: object, **meta: str) -> None:
        data = {"metadata": {**META, **meta}, "spec": {"selector": selector}}
        self.listers.require(KINDS[kind]).put(msgspec.convert(data, KINDS[kind]))

    def selector(self, pod: PodBuilder) -> str:
        return str(self.selectors.of(self._bench.pod_info(pod.obj()).template))


NOTHING_KNOWN = "<everything>"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param({"app": "web"}, "app in (web)", id="selects the pod"),
        pytest.param({"app": "db"}, NOTHING_KNOWN, id="selects other pods"),
        pytest.param({}, NOTHING_KNOWN, id="selects everything"),
        pytest.param(None, NOTHING_KNOWN, id="selects nothing"),
    ],
)
def test_services_that_select_the_pod(selector: dict[str, str] | None, expected: str) -> None:
    cluster = Cluster()
    cluster.put("Service", selector)

    assert cluster.selector(POD) == expected


def test_services_are_merged() -> None:
    cluster = Cluster()
    cluster.put("Service", {"app": "web"}, name="one")
    cluster.put("Service", {"tier": "1"}, name="two")
    cluster.put("Service", {"app": "web"}, name="three", namespace="other")

    assert cluster.selector(POD) == "app in (web),tier in (1)"


@pytest.mark.parametrize(
    ("kind", "api_version", "selector", "expected"),
    [
        pytest.param("ReplicationController", "v1", {"tier": "1"}, "tier in (1)", id="rc"),
        pytest.param(
            "ReplicaSet", "apps/v1", {"matchLabels": {"tier": "1"}}, "tier in (1)", id="rs"
        ),
        pytest.param(
            "StatefulSet",
            "apps/v1",
            {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            "tier",
            id="sts",
        ),
        pytest.param("ReplicaSet", "apps/v2", {}, "", id="an unknown version"),
        pytest.param("ReplicaSet", "apps/v1", None, "", id="no selector"),
        pytest.param(
            "ReplicaSet",
            "apps/v1",
            {"matchExpressions": [{"key": "tier", "operator": "Near"}]},
            "",
            id="a selector that cannot be parsed",
        ),
    ],
)
def test_the_controller_adds_its_selector(
    kind: str, api_version: str, selector: object, expected: str
) -> None:
    cluster = Cluster()
    cluster.put("Service", {"app": "web"})
    cluster.put(kind, selector)
    pod = POD.owner(kind, "web", api_version)

    assert cluster.selector(pod) == ",".join(filter(None, ["app in (web)", expected]))


def test_a_controller_that_is_not_known_adds_nothing() -> None:
    cluster = Cluster()
    cluster.put("ReplicaSet", {"matchLabels": {"tier": "1"}}, name="other")

    assert cluster.selector(POD.owner("ReplicaSet", "web")) == NOTHING_KNOWN


def test_what_changed_is_noticed() -> None:
    cluster = Cluster()
    pod = POD.owner("ReplicaSet", "web")
    assert cluster.selector(pod) == NOTHING_KNOWN

    cluster.put("Service", {"app": "web"})
    assert cluster.selector(pod) == "app in (web)"

    cluster.put("ReplicaSet", {"matchLabels": {"tier": "1"}})
    assert cluster.selector(pod) == "app in (web),tier in (1)"

    cluster.put("ReplicaSet", {"matchLabels": {"tier": "2"}})
    assert cluster.selector(pod) == "app in (web),tier in (2)"
