"""``ksched apiserver`` as a process of its own, for tests of commands."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from lab.child_process import ChildProcess

PATIENCE_SECONDS = 60.0


class EmbeddedServer(NamedTuple):
    """Where it is."""

    kubeconfig: str
    url: str

    def post(self, path: str, body: Any) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), headers)
        urllib.request.urlopen(request, timeout=10).close()


@contextmanager
def embedded_server(folder: Path, nodes: int) -> Iterator[EmbeddedServer]:
    """Start a server with some nodes; it ends with the block."""
    path, log = folder / "kubeconfig", folder / "log"
    command = [sys.executable, "-m", "ksched", "apiserver", "--port=0", f"--nodes={nodes}"]
    with ChildProcess("apiserver", [*command, f"--kubeconfig-out={path}"], log):
        wait_until(lambda: "serving" in log.read_text())
        found = re.search(r"http://\S+", log.read_text())
        assert found is not None
        yield EmbeddedServer(str(path), found[0])


def wait_until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
