"""What README.md shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ksched.testing.builders import make_node, make_pod
from ksched.testing.harness import cluster

README = (Path(__file__).parent.parent / "README.md").read_text()


def example(name: str) -> dict[str, Any]:
    """The names that an example defines."""
    found = re.search(rf"<!-- example: {name} -->\n```python\n(.*?)```", README, re.DOTALL)
    assert found, f"README.md has no example called {name}"
    names: dict[str, Any] = {}
    exec(found[1], names)
    return names


async def test_plugin_rejects_the_nodes_it_says():
    plugin = example("plugin")["NotFrozen"]()
    frozen = make_node("frozen").label({"change-freeze": "true"})

    async with cluster(nodes=[frozen], plugins=[plugin]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.message("web").startswith("0/1 nodes are available: 1 node(s) were frozen.")
        await c.create(make_node("free"))
        await c.settle()
        assert c.bound("web") == "free"


async def test_embedded_scheduler_runs(capsys):
    await example("embedded")["main"]()

    assert "Statistics(active=0" in capsys.readouterr().out


def test_links_lead_somewhere():
    root = Path(__file__).parent.parent
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target} does not exist"
