"""All figures of a run as one table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median

from bench.drain import Drain
from bench.latency import Latency
from bench.schedulers import KSCHED, KUBE_SCHEDULER

HEADINGS = (
    *("workload", "scheduler", "bound", "pods/s", "of limit", "CPU ms/pod", "server ms/pod"),
    *("idle", "RSS MB", "first bind s", "p50 ms", "p99 ms"),
)


@dataclass(frozen=True)
class Figures:
    """One line of the table; not a number where a run does not measure it."""

    bound: float
    asked: float
    pods_per_second: float = math.nan
    cpu_ms_per_pod: float = math.nan
    server_ms_per_pod: float = math.nan
    idle_share: float = math.nan
    rss_mb: float = math.nan
    first_bind_seconds: float = math.nan
    p50_ms: float = math.nan
    p99_ms: float = math.nan

    @classmethod
    def of(cls, run: Drain | Latency) -> Figures:
        if isinstance(run, Latency):
            return cls(**{each.name: getattr(run, each.name) for each in fields(run)})
        return cls(
            bound=run.bound,
            asked=run.asked,
            pods_per_second=run.pods_per_second,
            cpu_ms_per_pod=run.cpu_ms_per_pod,
            server_ms_per_pod=run.server_ms_per_pod,
            idle_share=run.idle_share,
            rss_mb=run.peak_rss_mb,
            first_bind_seconds=run.first_bind_seconds,
        )

    @classmethod
    def median_of(cls, rounds: Sequence[Figures]) -> Figures:
        return cls(
            **{each.name: median(getattr(one, each.name) for one in rounds) for each in fields(cls)}
        )


@dataclass(frozen=True)
class BindLimit:
    """What the API server itself can take, in pods a second."""

    binds_only: float
    with_events: float
    with_claims: Mapping[str, float] = field(default_factory=dict)
    """By workload with devices."""

    def of(self, workload: str) -> float:
        return self.with_claims.get(workload, self.binds_only)

    @classmethod
    def median_of(cls, rounds: Sequence[BindLimit]) -> BindLimit:
        workloads = rounds[0].with_claims
        return cls(
            binds_only=median(one.binds_only for one in rounds),
            with_events=median(one.with_events for one in rounds),
            with_claims={
                name: median(one.with_claims[name] for one in rounds) for name in workloads
            },
        )


def render(results: Mapping[str, Mapping[str, Figures]], limit: BindLimit | None = None) -> str:
    """The table: per workload a line for every scheduler, then how ksched compares."""
    lines: list[Sequence[str]] = [HEADINGS]
    for workload, by_scheduler in results.items():
        for scheduler, figures in by_scheduler.items():
            lines.append(_line(workload, scheduler, figures, limit))
        if KUBE_SCHEDULER in by_scheduler and KSCHED in by_scheduler:
            lines.append(_ratio_line(by_scheduler[KSCHED], by_scheduler[KUBE_SCHEDULER]))
    if limit is not None:
        for name, value in (
            ("API server: binds only", limit.binds_only),
            ("API server: bind + Event", limit.with_events),
            *((f"API server: {name}", value) for name, value in limit.with_claims.items()),
        ):
            lines.append((name, "no scheduler", "", _number(value), *[""] * (len(HEADINGS) - 4)))
    return _aligned(lines)


def _line(workload: str, scheduler: str, figures: Figures, limit: BindLimit | None) -> list[str]:
    share = math.nan if limit is None else figures.pods_per_second / limit.of(workload)
    return [
        workload,
        scheduler,
        f"{figures.bound:.0f}/{figures.asked:.0f}",
        _number(figures.pods_per_second),
        _percentage(share),
        _number(figures.cpu_ms_per_pod),
        _number(figures.server_ms_per_pod),
        _percentage(figures.idle_share),
        _number(figures.rss_mb),
        _number(figures.first_bind_seconds),
        _number(figures.p50_ms),
        _number(figures.p99_ms),
    ]


def _ratio_line(ours: Figures, theirs: Figures) -> list[str]:
    def ratio(name: str) -> str:
        mine, yours = getattr(ours, name), getattr(theirs, name)
        return "" if math.isnan(mine) or math.isnan(yours) or not yours else f"{mine / yours:.2f}x"

    cpu = map(ratio, ("cpu_ms_per_pod", "server_ms_per_pod"))
    others = map(ratio, ("rss_mb", "first_bind_seconds", "p50_ms", "p99_ms"))
    return ["", "ratio", "", ratio("pods_per_second"), "", *cpu, "", *others]


def _percentage(share: float) -> str:
    return "" if math.isnan(share) else f"{share:.0%}"


def _number(value: float) -> str:
    """Three digits that count, never fewer than those before the point."""
    if math.isnan(value):
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def text(line: Sequence[str]) -> str:
        words = [line[0].ljust(widths[0]), line[1].ljust(widths[1])]
        words += [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        return "  ".join(words).rstrip()

    head, *body = map(text, lines)
    return "\n".join([head, "-" * len(head), *body])
