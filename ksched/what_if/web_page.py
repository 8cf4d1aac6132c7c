"""A prediction as one HTML file: tables with bars, nothing loaded from elsewhere, no script.

Every bar has its numbers as text beside it, tables have captions and headers, and colours follow
the reader's choice of light or dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from ksched.what_if.amounts import CPU, amount, percent
from ksched.what_if.prediction import Capacity, Fate, NodeUse, Prediction
from ksched.what_if.rendering import (
    came_from,
    capacity_headline,
    grouped_by_message,
    headline,
    headroom_cells,
    pods_changed,
    remark,
)

DRAWN: Final = (CPU, "memory")
STYLE: Final = """
:root { color-scheme: light dark; --line: #ccc; --text: #1a1a1a; --page: #fff;
  --kept: #4a6fa5; --added: #c2410c; --freed: #9bb8d9; --bar: #e8e8e8; }
@media (prefers-color-scheme: dark) { :root { --line: #444; --text: #e6e6e6; --page: #16181c;
  --kept: #7aa2d8; --added: #f59e5b; --freed: #3b4f6b; --bar: #2a2d33; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
  margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; font-size: 1.1rem; padding: .5rem 0; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere; }
th[scope=row] { font-weight: 500; }
.bar { display: flex; width: 14rem; height: .8rem; background: var(--bar);
  border: 1px solid var(--line); margin-top: .35rem; }
.bar i { display: block; height: 100%; }
.kept { background: var(--kept); } .freed { background: var(--freed); }
.added { background: repeating-linear-gradient(45deg, var(--added) 0 4px, transparent 4px 6px); }
.key { display: inline-block; width: 1rem; height: .8rem; border: 1px solid var(--line); }
"""


def page(prediction: Prediction) -> str:
    """Return the whole file."""
    title, ends = headline(prediction).split("\n", 1)
    body = [f"<h1>{escape(title)}</h1>", f"<p>{escape(ends)}</p>"]
    if prediction.notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in prediction.notes)
        body.append(f"<h2>Notes</h2><ul>{items}</ul>")
    body += _pods(prediction)
    if prediction.capacity is not None:
        body += _capacity(prediction.capacity)
    body += _nodes(prediction.nodes)
    rows = [[one.resource, *headroom_cells(one)] for one in prediction.headroom]
    heads = ["Resource", "Allocatable", "Free", "Most free on one node"]
    body.append(_table("Headroom of the nodes that take pods", heads, rows))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{chr(10).join(part for part in body if part)}\n</main></body></html>\n"
    )


def _pods(prediction: Prediction) -> Iterator[str]:
    placed = [[one.replaces or one.pod, came_from(one), one.after] for one in prediction.placed]
    yield _table("Pods that get a node", ["Pod", "From", "To"], placed)
    yield _table("Pods that stay pending", ["Pod", "From", "Reason"], _waiting(prediction.pending))
    heads = ["Pod", "From", "Why"]
    yield _table("Pods that cannot be predicted", heads, _waiting(prediction.undecided))
    evicted = [[one.pod, one.node, one.preemptor] for one in prediction.evictions]
    yield _table("Pods that are preempted", ["Pod", "Node", "For"], evicted)
    gone = [[one.pod, one.node or "-", one.reason] for one in prediction.departures]
    yield _table("Pods that end and are not made again", ["Pod", "Node", "Why"], gone)
    stay = [[one.pod, one.node, one.reason] for one in prediction.staying]
    yield _table("Pods left on the drained nodes", ["Pod", "Node", "Why"], stay)


def _waiting(fates: Sequence[Fate]) -> list[list[str]]:
    return [
        [one.replaces or one.pod, came_from(one), message]
        for message, members in grouped_by_message(fates)
        for one in members
    ]


def _capacity(capacity: Capacity) -> Iterator[str]:
    yield f"<h2>Capacity</h2><p>{escape(capacity_headline(capacity))}.</p>"
    runs_out = [[one.reason, str(len(one.nodes)), "runs out"] for one in capacity.runs_out]
    never = [[one.reason, str(len(one.nodes)), "from the start"] for one in capacity.never]
    yield _table("What runs out", ["Reason", "Nodes", "When"], runs_out + never)
    if capacity.message:
        yield f"<p>The next one: {escape(capacity.message)}</p>"


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column names the row; empty if there are no rows."""
    lines = [
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    ]
    return _framed(caption, heads, lines) if lines else ""


def _framed(caption: str, heads: Sequence[str], lines: Sequence[str]) -> str:
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in heads)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>\n<tbody>"
        + "\n".join(lines)
        + "</tbody></table></div>"
    )


# -- nodes --------------------------------------------------------------------------------------


def _nodes(nodes: Sequence[NodeUse]) -> Iterator[str]:
    keys = (("kept", "before and after"), ("added", "added"), ("freed", "freed"))
    legend = " ".join(f'<span class="key {name}"></span> {text}' for name, text in keys)
    yield f'<p aria-hidden="true">Requested: {legend}</p>'
    lines = []
    for one in nodes:
        bars = "".join(f"<td>{_bar(one, resource)}</td>" for resource in DRAWN)
        lines.append(
            f'<tr><th scope="row">{escape(one.node)}</th>{bars}'
            f"<td>{escape(pods_changed(one))}</td><td>{escape(remark(one))}</td></tr>"
        )
    heads = ["Node", *(f"{name} requested" for name in DRAWN), "Pods", "Remark"]
    yield _framed("Nodes before and after", heads, lines)


def _bar(use: NodeUse, resource: str) -> str:
    whole = use.allocatable.get(resource, 0)
    before, after = (use.before or {}).get(resource, 0), use.after.get(resource, 0)
    was, now = (min(percent(part, whole), 100) for part in (before, after))
    kind = "added" if now > was else "freed"
    text = f"{percent(before, whole)} % → {percent(after, whole)} % of {amount(resource, whole)}"
    return (
        f"{escape(text)}"
        f'<span class="bar" aria-hidden="true"><i class="kept" style="width:{min(was, now)}%"></i>'
        f'<i class="{kind}" style="width:{abs(now - was)}%"></i></span>'
    )
