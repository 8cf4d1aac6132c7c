"""docs/endpoints.md has every path that is served, and no other."""

from __future__ import annotations

import re

from ksched.configuration.serving_flags import ALWAYS_ALLOW_PATHS
from ksched.metrics import Metrics
from ksched.testing.harness import cluster
from ksched.web.web_server import WebServer
from lab.source_tree import ROOT

PAGE = (ROOT / "docs/endpoints.md").read_text()
ROW = re.compile(r"^\| (`/.*?) \|.*\| (.+?) \|$", re.MULTILINE)
NAMES = {"NAMESPACE": "{namespace}", "NAME": "{name}", "CHECK": "{check}"}


def documented() -> dict[str, str]:
    """Each path of the first table, and who may read it."""
    found = {}
    for paths, readers in ROW.findall(PAGE.partition("\n## ")[0]):
        for path in re.findall(r"`(/.*?)`", paths):
            for word, part in NAMES.items():
                path = re.sub(rf"\b{word}\b", part, path)
            found[path] = readers
    return found


async def test_every_path_is_on_the_page() -> None:
    async with cluster() as c:
        server = WebServer(
            c.scheduler,
            Metrics(),
            live={},
            ready={},
            access=None,
            flags={},
            set_verbosity=lambda verbosity: None,
        )
        assert set(documented()) == set(server.paths)


def test_only_the_probes_are_for_everybody() -> None:
    open_paths = {path for path, readers in documented().items() if readers == "everybody"}
    assert open_paths == set(ALWAYS_ALLOW_PATHS)
