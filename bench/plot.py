"""Curves over time as one HTML page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, MARGIN = 900, 180, 60


def page(
    title: str, minutes: Sequence[float], curves: Mapping[str, Sequence[float]], notes: str
) -> str:
    """A page with a panel for each curve."""
    panels = "\n".join(_panel(name, minutes, values) for name, values in curves.items())
    return (
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'>\n"
        f"<title>{escape(title)}</title>\n"
        "<style>body{font:14px sans-serif;margin:24px}svg{display:block;margin-bottom:18px}"
        "polyline{fill:none;stroke:#2266bb;stroke-width:1.2}line{stroke:#ccc}"
        "text{font-size:11px;fill:#444}</style>\n"
        f"<h1>{escape(title)}</h1>\n{panels}\n<pre>{escape(notes)}</pre>\n</html>\n"
    )


def _panel(name: str, minutes: Sequence[float], values: Sequence[float]) -> str:
    highest = max(values, default=0.0) or 1.0
    last = max(minutes, default=0.0) or 1.0

    def at(minute: float, value: float) -> str:
        x = MARGIN + (WIDTH - 2 * MARGIN) * minute / last
        y = HEIGHT - 20 - (HEIGHT - 50) * value / highest
        return f"{x:.1f},{y:.1f}"

    points = " ".join(at(*point) for point in zip(minutes, values, strict=True))
    base, right = HEIGHT - 20, WIDTH - MARGIN
    return (
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}' role='img'>"
        f"<text x='{MARGIN}' y='16'>{escape(name)}</text>"
        f"<line x1='{MARGIN}' y1='{base}' x2='{right}' y2='{base}'/>"
        f"<line x1='{MARGIN}' y1='30' x2='{right}' y2='30'/>"
        f"<text x='4' y='34'>{highest:.4g}</text><text x='4' y='{base}'>0</text>"
        f"<text x='{right}' y='{HEIGHT - 4}' text-anchor='end'>{last:.3g} min</text>"
        f"<polyline points='{points}'/></svg>"
    )
