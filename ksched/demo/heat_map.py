"""The nodes as a heat map: a cell per node, zone by zone, filling up as pods land."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from rich.color import Color
from rich.style import Style
from rich.text import Text

from ksched.cache.cache import SchedulerCache
from ksched.demo.fleet import POOL, ZONE

BARS: Final = " ▁▂▃▄▅▆▇█"
GLOW_SECONDS: Final = 1.2

Rgb = tuple[int, int, int]

# Cold to hot; a cell takes the colour of its busier resource.
_HEAT: Final[tuple[Rgb, ...]] = (
    (30, 50, 66),
    (24, 84, 96),
    (26, 122, 96),
    (84, 142, 62),
    (176, 142, 44),
    (204, 98, 40),
    (196, 48, 52),
)
_GLOW: Final[Rgb] = (150, 220, 255)
_BRIGHTEST: Final = 0.42
_SHADES: Final = 32
_TAGS: Final = {"general": " ", "large": "L", "gpu": "G", "spot": "S", "giant": "X"}
_CORDONED: Final = Style(dim=True)
# Width of a cell, and lines between zones; the best first.
_KINDS: Final = ((13, 1), (8, 1), (8, 0), (6, 1), (6, 0), (3, 1), (3, 0), (1, 1), (1, 0))


class NodeCell(NamedTuple):
    """One node, or several drawn as one."""

    name: str
    zone: str
    tag: str
    cpu: float
    memory: float
    pods: int
    is_cordoned: bool
    glow: float
    """From 1 when a pod lands here down to 0 soon after."""


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
                max(0.0, 1 - (now - landed.get(name, -GLOW_SECONDS)) / GLOW_SECONDS),
            )
        )
    return sorted(cells, key=lambda cell: (cell.zone, cell.name))


def heat_map(cells: Sequence[NodeCell], width: int, height: int) -> list[Text]:
    """Draw the nodes into a box; the roomiest kind of cell that fits is taken."""
    zones = _by_zone(cells)
    if not zones or height < 1 or width < 8:
        return []
    for cell_width, gap in _KINDS:
        columns = _columns(cell_width, width)
        rows = sum(1 + gap - (-len(nodes) // columns) for nodes in zones.values())
        if rows - gap <= height:
            return _draw(zones, cell_width, width, gap)
    room = max(1, height // len(zones) - 1) * width
    merged = {zone: _merge(nodes, room) for zone, nodes in zones.items()}
    return _draw(merged, 1, width, 0)[:height]


def legend(cells: Sequence[NodeCell]) -> str:
    """What the letters in the cells mean, as far as they occur."""
    tags = {cell.tag for cell in cells}
    known = [f"{tag} {pool}" for pool, tag in _TAGS.items() if tag in tags and tag != " "]
    cordoned = ["╳ cordoned"] if any(cell.is_cordoned for cell in cells) else []
    return "  ".join([*known, *cordoned])


def heat_style(use: float, glow: float = 0.0) -> Style:
    """The colour of a utilisation between 0 and 1, and a glow over it."""
    return _shade(round(min(max(use, 0.0), 1.0) * _SHADES) / _SHADES, round(glow * 4) / 4)


@cache
def _shade(use: float, glow: float) -> Style:
    position = use * (len(_HEAT) - 1)
    index = min(int(position), len(_HEAT) - 2)
    colour = _blend(_HEAT[index], _HEAT[index + 1], position - index)
    red, green, blue = _blend(colour, _GLOW, glow * _BRIGHTEST)
    is_new = glow > 0
    return Style(color="bright_white", bgcolor=Color.from_rgb(red, green, blue), bold=is_new)


def _blend(one: Rgb, other: Rgb, part: float) -> Rgb:
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(one, other, strict=True))
    return red, green, blue


def bar(use: float) -> str:
    """A utilisation as one character; anything above nothing is visible."""
    steps = len(BARS) - 1
    return BARS[min(steps, max(1 if use > 0 else 0, round(use * steps)))]


def horizontal_bar(part: float, width: int) -> str:
    """A bar of eighths; anything above nothing is visible."""
    eighths = round(min(max(part, 0.0), 1.0) * width * 8)
    if part > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return "█" * full + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]


def _draw(zones: dict[str, list[NodeCell]], cell_width: int, width: int, gap: int) -> list[Text]:
    lines: list[Text] = []
    spacing = _spacing(cell_width)
    columns = _columns(cell_width, width)
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


def _spacing(cell_width: int) -> int:
    return 1 if cell_width > 3 else 0


def _columns(cell_width: int, width: int) -> int:
    spacing = _spacing(cell_width)
    return max(1, (width + spacing) // (cell_width + spacing))


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
    number = cell.name.rpartition("-")[2][:2]
    if width == 13:
        cpu_bar = horizontal_bar(cell.cpu, 5)
        text = f"{number:>2}{mark} {cpu_bar:<5}{min(cell.pods, 999):>4}"
    elif width == 8:
        text = f"{number:>2}{mark}{cpu}{memory}{min(cell.pods, 999):>3}"
    elif width == 6:
        text = f"{mark}{cpu}{memory}{min(cell.pods, 999):>3}"
    elif width == 3:
        text = f"{cpu}{memory}{mark}"
    else:
        text = "╳" if cell.is_cordoned else cpu
    if cell.is_cordoned:
        return text, _CORDONED
    return text, heat_style(max(cell.cpu, cell.memory), cell.glow)


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
            max(node.glow for node in group),
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
