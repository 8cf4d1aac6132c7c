"""The nodes as a heat map: a cell per node, zone by zone, filling up as pods land."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.color import Color
from rich.style import Style
from rich.text import Text

from ksched.cache.cache import SchedulerCache
from ksched.demo.fleet import POOL, ZONE

BARS: Final = " ▁▂▃▄▅▆▇█"
FLASH_SECONDS: Final = 0.7

# Cold to hot; a cell takes the colour of its busier resource.
_HEAT: Final = (
    (30, 50, 66),
    (24, 84, 96),
    (26, 122, 96),
    (84, 142, 62),
    (176, 142, 44),
    (204, 98, 40),
    (196, 48, 52),
)
_TAGS: Final = {"general": " ", "large": "L", "gpu": "G", "spot": "S", "giant": "X"}
_GONE_DIM: Final = Style(dim=True)


class NodeCell(NamedTuple):
    """One node, or several drawn as one."""

    name: str
    zone: str
    tag: str
    cpu: float
    memory: float
    pods: int
    is_cordoned: bool
    is_fresh: bool
    """Whether a pod has just landed here."""


def sample(cache: SchedulerCache, landed: dict[str, float], now: float) -> list[NodeCell]:
    """Look at every node; in the order of zone and name."""
    cells = []
    for name in cache.node_names():
        info = cache.get_node(name)
        if info is None or info.node is None:
            continue
        cells.append(
            NodeCell(
                name,
                info.labels.get(ZONE, ""),
                _TAGS.get(info.labels.get(POOL, ""), " "),
                _ratio(info.requested_of("cpu"), info.allocatable_of("cpu")),
                _ratio(info.requested_of("memory"), info.allocatable_of("memory")),
                len(info.pods),
                info.node.spec.unschedulable,
                now - landed.get(name, -FLASH_SECONDS) < FLASH_SECONDS,
            )
        )
    return sorted(cells, key=lambda cell: (cell.zone, cell.name))


def heat_map(cells: Sequence[NodeCell], width: int, height: int) -> list[Text]:
    """Draw the nodes into a box; the roomiest kind of cell that fits is taken."""
    zones = _by_zone(cells)
    if not zones or height < 1 or width < 8:
        return []
    for cell_width in (8, 6, 3, 1):
        for gap in (1, 0):
            lines = _draw(zones, cell_width, width, gap)
            if len(lines) <= height:
                return lines
    rows = max(1, height // len(zones) - 1)
    room = rows * width
    merged = {zone: _merge(nodes, room) for zone, nodes in zones.items()}
    return _draw(merged, 1, width, 0)[:height]


def heat_style(use: float) -> Style:
    """The colour of a utilisation between 0 and 1."""
    position = min(max(use, 0.0), 1.0) * (len(_HEAT) - 1)
    index = min(int(position), len(_HEAT) - 2)
    part = position - index
    low, high = _HEAT[index], _HEAT[index + 1]
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(low, high, strict=True))
    return Style(color="bright_white", bgcolor=Color.from_rgb(red, green, blue))


def bar(use: float) -> str:
    """A utilisation as one character; anything above nothing is visible."""
    steps = len(BARS) - 1
    return BARS[min(steps, max(1 if use > 0 else 0, round(use * steps)))]


def _draw(zones: dict[str, list[NodeCell]], cell_width: int, width: int, gap: int) -> list[Text]:
    lines: list[Text] = []
    spacing = 0 if cell_width == 1 else 1
    columns = max(1, (width + spacing) // (cell_width + spacing))
    for zone, nodes in zones.items():
        if lines and gap:
            lines.append(Text())
        lines.append(_zone_line(zone, nodes, width))
        for start in range(0, len(nodes), columns):
            line = Text(no_wrap=True)
            for number, cell in enumerate(nodes[start : start + columns]):
                if number and spacing:
                    line.append(" ")
                line.append(*_cell(cell, cell_width))
            lines.append(line)
    return lines


def _zone_line(zone: str, nodes: Sequence[NodeCell], width: int) -> Text:
    count = len(nodes)
    cpu = sum(node.cpu for node in nodes) / count
    memory = sum(node.memory for node in nodes) / count
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(zone or "no zone", "bold")
    line.append(f"  cpu {cpu:4.0%}  memory {memory:4.0%}", "dim")
    line.append(f"  {sum(node.pods for node in nodes)} pods", "dim")
    line.truncate(width)
    return line


def _cell(cell: NodeCell, width: int) -> tuple[str, Style]:
    cpu, memory = bar(cell.cpu), bar(cell.memory)
    mark = "╳" if cell.is_cordoned else cell.tag
    if width >= 8:
        number = cell.name.rpartition("-")[2][:2]
        text = f"{number:>2}{mark}{cpu}{memory}{min(cell.pods, 999):>3}"
    elif width >= 6:
        text = f"{mark}{cpu}{memory}{min(cell.pods, 999):>3}"
    elif width == 3:
        text = f"{cpu}{memory}{mark}"
    else:
        text = "╳" if cell.is_cordoned else cpu
    if cell.is_fresh:
        return text, Style(color="black", bgcolor="bright_white", bold=True)
    if cell.is_cordoned:
        return text, _GONE_DIM
    return text, heat_style(max(cell.cpu, cell.memory))


def _merge(nodes: Sequence[NodeCell], room: int) -> list[NodeCell]:
    """Let each cell stand for several nodes, so that not more than ``room`` are needed."""
    size = -(-len(nodes) // max(room, 1))
    groups = [nodes[start : start + size] for start in range(0, len(nodes), size)]
    return [
        NodeCell(
            group[0].name,
            group[0].zone,
            " ",
            sum(node.cpu for node in group) / len(group),
            sum(node.memory for node in group) / len(group),
            sum(node.pods for node in group),
            all(node.is_cordoned for node in group),
            any(node.is_fresh for node in group),
        )
        for group in groups
    ]


def _by_zone(cells: Sequence[NodeCell]) -> dict[str, list[NodeCell]]:
    zones: dict[str, list[NodeCell]] = {}
    for cell in cells:
        zones.setdefault(cell.zone, []).append(cell)
    return zones


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
