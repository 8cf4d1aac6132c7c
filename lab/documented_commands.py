"""Pages of docs/ that show commands of ``ksched`` and what they print."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

_CONSOLE = re.compile(r"^```console\n\$ ([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def check_page(page: Path, command: str, run: Callable[[list[str]], str]) -> int:
    """Compare what the page shows with what ``run`` prints; returns the number of commands.

    All of them are ``ksched COMMAND``, and ``run`` gets the arguments after that. With
    ``UPDATE_PAGES=1`` in the environment the page is written anew.
    """
    before, shown = page.read_text(), 0

    def printed(match: re.Match[str]) -> str:
        nonlocal shown
        shown += 1
        words = shlex.split(match[1])
        assert words[:2] == ["ksched", command]
        return f"```console\n$ {match[1]}\n{run(words[2:])}```"

    after = _CONSOLE.sub(printed, before)
    if os.environ.get("UPDATE_PAGES"):
        page.write_text(after)
    assert after == before
    return shown
