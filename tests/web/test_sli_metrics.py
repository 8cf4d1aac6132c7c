"""Results of health checks as metrics. Covers ``ksched.web.exposition`` too."""

from __future__ import annotations

from ksched.web.exposition import accepted_format
from ksched.web.health import Health
from ksched.web.sli_metrics import SliMetrics


def lines(metrics: SliMetrics, accept: str = "") -> list[str]:
    return b"".join(accepted_format(accept).pieces([metrics])).decode().splitlines()


def test_every_run_of_a_check_counts_and_the_last_one_shows() -> None:
    metrics = SliMetrics()
    problem = "not yet"
    health = Health("readyz", {"sync": lambda: problem}, metrics.observe)
    health.report()
    health.report(exclude=["sync"])
    problem = ""
    health.report(verbose=True)
    health.report_one("sync")

    found = lines(metrics)
    assert 'kubernetes_healthcheck{name="sync",type="readyz"} 1.0' in found
    results = 'kubernetes_healthchecks_total{name="sync",status="%s",type="readyz"} 1.0'
    assert results % "success" in found
    assert results % "error" in found
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 3.0' in found
    assert any(line.startswith("process_start_time_seconds ") for line in found)


def test_page_without_results_has_the_names() -> None:
    found = lines(SliMetrics(), "application/openmetrics-text")
    assert "# TYPE kubernetes_healthcheck gauge" in found
    assert "# TYPE kubernetes_healthchecks counter" in found
    assert found[-1] == "# EOF"
