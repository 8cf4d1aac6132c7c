from __future__ import annotations

from math import nan

from bench.drain import Drain
from bench.latency import Latency
from bench.table import BindLimit, Figures, render

THEIRS = Figures.of(Drain(3000, 3000, 200.0, 1.5, 4.0, 400.0))
OURS = Figures.of(Drain(3000, 3000, 800.0, 0.75, 0.5, 100.0))
LIMIT = BindLimit(binds_only=1000.0, with_events=600.0)


def cells(table: str, scheduler: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if f" {scheduler} " in line]
    return line.partition(scheduler)[2].split()


def test_ratios_are_ours_over_theirs() -> None:
    table = render({"basic": {"kube-scheduler": THEIRS, "ksched": OURS}}, LIMIT)

    assert cells(table, "kube-scheduler") == ["3000/3000", "200", "20%", "4", "400", "1.5"]
    assert cells(table, "ksched") == ["3000/3000", "800", "80%", "0.5", "100", "0.75"]
    assert cells(table, "ratio") == ["4.00x", "0.12x", "0.25x", "0.50x"]


def test_open_loop_shows_waits_and_no_throughput() -> None:
    run = Figures.of(Latency(2000, 2000, 10.04, 292.4, 3.0, 90.0))
    table = render({"100 pods/s": {"kube-scheduler": run}}, LIMIT)

    assert cells(table, "kube-scheduler") == ["2000/2000", "3", "90", "10", "292"]
    assert "ratio" not in table


def test_limits_of_the_api_server_close_the_table() -> None:
    *_, binds, events = render({}, LIMIT).splitlines()

    assert binds.split()[-1] == "1000"
    assert events.split()[-1] == "600"


def test_a_workload_with_devices_has_a_limit_of_its_own() -> None:
    limit = BindLimit(1000.0, 600.0, {"claims": 400.0})
    table = render({"claims": {"ksched": Figures(1, 1, pods_per_second=100.0)}}, limit)

    assert cells(table, "ksched") == ["1/1", "100", "25%"]
    assert table.splitlines()[-1].split()[-1] == "400"
    medians = BindLimit.median_of([BindLimit(1, 1, {"claims": each}) for each in (1, 5, 3)])
    assert medians.of("claims") == 3
    assert medians.of("basic") == 1


def test_nothing_bound_leaves_cells_empty() -> None:
    idle = Figures.of(Drain(0, 10, nan, nan, nan, 50.0))
    table = render({"basic": {"kube-scheduler": idle, "ksched": OURS}}, LIMIT)

    assert cells(table, "kube-scheduler") == ["0/10", "50"]


def test_median_of_rounds_is_taken_per_figure() -> None:
    rounds = [Figures(1, 1, pods_per_second=p, rss_mb=r) for p, r in ((1, 30), (2, 10), (9, 20))]

    assert Figures.median_of(rounds).pods_per_second == 2
    assert Figures.median_of(rounds).rss_mb == 20
