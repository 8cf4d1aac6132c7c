#!/usr/bin/env python3
"""Write the Grafana dashboard of config/components/monitoring from the table below."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parent.parent / "config/components/monitoring/dashboard.json"
WIDTH, HEIGHT, COLUMNS = 12, 8, 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    title: str
    unit: str
    expression: str
    legend: str
    description: str


def _quantile(share: float, metric: str, by: str = "le") -> str:
    selected = f'{metric}_bucket{{job="ksched"}}[$__rate_interval]'
    return f"histogram_quantile({share}, sum by ({by}) (rate({selected})))"


def _rate(metric: str, by: str) -> str:
    return f'sum by ({by}) (rate({metric}{{job="ksched"}}[$__rate_interval]))'


PANELS = (
    Panel(
        "Attempts by result",
        "ops",
        _rate("scheduler_schedule_attempts_total", "result"),
        "{{result}}",
        "scheduled, unschedulable (no node fits), error",
    ),
    Panel(
        "From creation to binding, p99",
        "s",
        _quantile(0.99, "scheduler_pod_scheduling_sli_duration_seconds"),
        "p99",
        "Time of pods in the queue and in attempts; gated time is not counted.",
    ),
    Panel(
        "Pods that wait, by queue",
        "short",
        'max by (queue) (scheduler_pending_pods{job="ksched"})',
        "{{queue}}",
        "active, backoff, unschedulable, gated",
    ),
    Panel(
        "Unschedulable pods, by plugin",
        "short",
        'max by (plugin) (scheduler_unschedulable_pods{job="ksched"})',
        "{{plugin}}",
        "A pod that several plugins reject is counted for each.",
    ),
    Panel(
        "Attempt, p99 by result",
        "s",
        _quantile(0.99, "scheduler_scheduling_attempt_duration_seconds", "le, result"),
        "{{result}}",
        "Scheduling cycle and binding cycle.",
    ),
    Panel(
        "Extension points, p99",
        "s",
        _quantile(
            0.99, "scheduler_framework_extension_point_duration_seconds", "le, extension_point"
        ),
        "{{extension_point}}",
        "All plugins of a point together.",
    ),
    Panel(
        "Plugins, p99 (one attempt in a hundred)",
        "s",
        _quantile(0.99, "scheduler_plugin_execution_duration_seconds", "le, plugin"),
        "{{plugin}}",
        "Which plugin takes the time.",
    ),
    Panel(
        "Pods that wait at Permit",
        "short",
        'max by (plugin) (scheduler_permit_waiting_pods{job="ksched"})',
        "{{plugin}}",
        "They hold their room on a node.",
    ),
    Panel(
        "Preemptions",
        "ops",
        _rate("scheduler_preemption_attempts_total", "job"),
        "attempts",
        "Attempts to make room by evictions.",
    ),
    Panel(
        "Pod groups by state",
        "short",
        'max by (state) (ksched_groups{job="ksched"})',
        "{{state}}",
        "Gangs that wait and gangs that run.",
    ),
    Panel(
        "Requests to the API server, by code",
        "reqps",
        _rate("rest_client_requests_total", "code"),
        "{{code}}",
        "409 and 429 deserve a look.",
    ),
    Panel(
        "Age of the watches",
        "s",
        'max by (resource) (scheduler_watch_age_seconds{job="ksched"})',
        "{{resource}}",
        "Since the API server last sent anything.",
    ),
    Panel(
        "Lag of the event loop, p99",
        "s",
        _quantile(0.99, "scheduler_event_loop_lag_seconds", "le, pod"),
        "{{pod}}",
        "The lease is lost at ten seconds.",
    ),
    Panel(
        "Leader",
        "short",
        'leader_election_master_status{job="ksched"}',
        "{{pod}}",
        "1 for the replica that schedules.",
    ),
)


def dashboard() -> dict[str, object]:
    return {
        "title": "ksched",
        "uid": "ksched",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel) -> dict[str, object]:
    across = COLUMNS // WIDTH
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {
            "x": number % across * WIDTH,
            "y": number // across * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": "A",
                "datasource": SOURCE,
                "expr": panel.expression,
                "legendFormat": panel.legend,
            }
        ],
    }


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


def main() -> int:
    PAGE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
