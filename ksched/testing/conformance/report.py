"""What a conformance check found, for a person and for a machine."""

from __future__ import annotations

import textwrap
from typing import Any, Final

import msgspec
from msgspec import Struct, field

WIDTH: Final = 100


class Finding(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One way in which a plugin broke its contract."""

    check: str
    fault: str
    """A few words: what kind of fault it is."""
    plugin: str
    method: str
    text: str
    """One sentence: what happened."""
    advice: str
    pod: str = ""
    node: str = ""
    answers: tuple[str, ...] = ()
    """What the plugin answered, where it should have answered twice the same."""


class Cost(Struct, frozen=True, rename="camel"):
    """CPU time of one plugin for one pod, by number of nodes."""

    nodes: int
    first_ms: float
    """The first pod of a template."""
    next_ms: float
    """Every further one: cached results are not computed again."""
    estimated: bool = False
    """Whether it was calculated from a smaller cluster, because measuring would take too long."""


class CheckResult(Struct, rename="camel"):
    """One check: its number of cases, its findings, and what it could not check."""

    name: str
    about: str
    cases: int = 0
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Add a finding; of several of one kind about one method only the first is kept."""
        if (finding.fault, finding.method) not in {(f.fault, f.method) for f in self.findings}:
            self.findings.append(finding)


class Report(Struct, rename="camel"):
    """Everything that one run of the kit found out about a plugin."""

    plugin: str
    target: str
    points: list[str]
    seed: int
    nodes: int
    checks: list[CheckResult] = field(default_factory=list)
    reproduce: str = ""

    @property
    def findings(self) -> list[Finding]:
        return [finding for check in self.checks for finding in check.findings]

    @property
    def costs(self) -> list[Cost]:
        return [cost for check in self.checks for cost in check.costs]

    @property
    def is_clean(self) -> bool:
        return not self.findings

    def to_json(self) -> str:
        data: dict[str, Any] = {"clean": self.is_clean, **msgspec.to_builtins(self)}
        return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()

    def to_text(self) -> str:
        head = f"{self.plugin} ({self.target}): {', '.join(self.points) or 'no extension point'}"
        lines = [head, f"seed {self.seed}, {self.nodes} nodes", "", *self._table()]
        lines += ["", *self._cost_lines()] if self.costs else []
        for number, finding in enumerate(self.findings, 1):
            lines += ["", *_paragraph(number, finding), f"   reproduce: {self.reproduce}"]
        count = len(self.findings)
        verdict = "no findings" if not count else f"{count} finding{'s' if count > 1 else ''}"
        return "\n".join([*lines, "", verdict])

    def _table(self) -> list[str]:
        rows = [("CHECK", "CASES", "FINDINGS", "")]
        for check in self.checks:
            found = str(len(check.findings)) if check.cases else "-"
            rows.append((check.name, str(check.cases or "-"), found, check.about))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = []
        for number, (name, cases, found, about) in enumerate(rows):
            cells = (name.ljust(widths[0]), cases.rjust(widths[1]), found.rjust(widths[2]), about)
            lines.append("  ".join(cells).rstrip())
            notes = self.checks[number - 1].notes if number else []
            for note in notes:
                lines += _wrapped(note, "    note: ")
        return lines

    def _cost_lines(self) -> list[str]:
        lines = []
        for cost in self.costs:
            about = "about " if cost.estimated else ""
            lines.append(
                f"CPU time per pod at {cost.nodes:,} nodes: {about}{cost.next_ms:.2f} ms, "
                f"{about}{cost.first_ms:.2f} ms for the first pod of a template"
            )
        return lines


def _paragraph(number: int, finding: Finding) -> list[str]:
    where = [f'plugin "{finding.plugin}"', *([finding.method] if finding.method else [])]
    where += [f'pod "{finding.pod}"'] if finding.pod else []
    where += [f'node "{finding.node}"'] if finding.node else []
    lines = [f"{number}. {finding.fault}: {', '.join(where)}", *_wrapped(finding.text, "   ")]
    for answer in finding.answers:
        lines += _wrapped(answer, "     - ")
    return [*lines, *_wrapped(finding.advice, "   what to do: ")]


def _wrapped(text: str, first: str) -> list[str]:
    rest = " " * len(first)
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
