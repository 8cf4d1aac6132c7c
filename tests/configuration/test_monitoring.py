"""Alerts and dashboard name metrics and labels that exist (config/components/monitoring)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ksched.daemon.observation import _groups, gauges
from ksched.daemon.reloads import ConfigReloads
from ksched.metrics import Counter, Histogram, Metrics
from ksched.testing import Cluster, cluster
from tools.dashboard import PAGE, PANELS, text

MONITORING = Path(__file__).parents[2] / "config/components/monitoring"
METRIC = re.compile(r"\b((?:scheduler|ksched|leader_election|rest_client)_[a-z_]+)")
ALERTS = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"][0]["rules"]
EXPRESSIONS = {
    **{rule["alert"]: rule["expr"] for rule in ALERTS},
    **{panel.title: panel.expression for panel in PANELS},
}


def test_the_dashboard_is_up_to_date() -> None:
    assert PAGE.read_text() == text(), "run python tools/dashboard.py"


def test_panels_do_not_overlap() -> None:
    places = [tuple(panel["gridPos"].values()) for panel in json.loads(text())["panels"]]
    assert len(set(places)) == len(PANELS)


OF_PROMETHEUS = {"job", "pod", "le"}


def labels_of(c: Cluster) -> dict[str, set[str]]:
    """The labels of every metric of a scheduler, by the name of its series."""
    found = {"leader_election_master_status": {"name"}}
    for metric in vars(Metrics()).values():
        if isinstance(metric, Counter):
            found[metric.name] = set(metric.labels)
        elif isinstance(metric, Histogram):
            found[f"{metric.name}_bucket"] = set(metric.labels)
    reloads = ConfigReloads(
        None, c.scheduler.configuration, lambda: c.scheduler, c.clock, c.scheduler.metrics
    )
    for family in (*gauges(c.scheduler), *_groups(c.scheduler), *reloads.gauges()):
        found[family.name] = set(family._labelnames)  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("name", EXPRESSIONS)
async def test_metrics_and_labels_exist(name: str) -> None:
    expression = EXPRESSIONS[name]
    async with cluster() as c:
        known = labels_of(c)
    (metric,) = METRIC.findall(expression)
    assert metric in known
    used = {
        label.strip()
        for labels in re.findall(r"by \(([^)]*)\)", expression)
        for label in labels.split(",")
    }
    used |= set(re.findall(r"(\w+)=\"", expression))
    assert used - OF_PROMETHEUS <= known[metric], expression


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    shown = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert shown <= set(re.findall(r"\w+", rule["expr"]))
    assert rule["annotations"].keys() == {"summary", "description"}
