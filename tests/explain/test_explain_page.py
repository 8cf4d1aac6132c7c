"""docs/explain.md: every command prints what the page shows.

``UPDATE_PAGES=1`` writes the output into the page. Covers ``ksched.commands.explain`` and
``ksched.commands.read_only_access``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from ksched.cli import execute
from lab.documented_commands import check_page
from lab.embedded_process import embedded_server

PAGE = Path(__file__).parent.parent.parent / "docs" / "explain.md"


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory):
    """An API server of its own process with the pods of the page."""
    with embedded_server(tmp_path_factory.mktemp("explain"), 4) as server:
        (manifests,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.M | re.DOTALL)
        for manifest in yaml.safe_load_all(manifests):
            server.post("/api/v1/namespaces/default/pods", manifest)
        yield server.kubeconfig


def run(kubeconfig, capsys, *arguments):
    code = execute(["explain", f"--kubeconfig={kubeconfig}", *arguments])
    return code, capsys.readouterr().out


@pytest.mark.real_time
def test_the_page_shows_what_is_printed(kubeconfig, capsys):
    shown = check_page(PAGE, "explain", lambda words: run(kubeconfig, capsys, *words)[1])
    assert shown >= 4


@pytest.mark.real_time
def test_output_for_programs_and_exit_codes(kubeconfig, capsys, tmp_path):
    code, text = run(kubeconfig, capsys, "pods/report", "-o", "json", "--node", "node-0003")
    content = json.loads(text)
    assert (code, content["pod"]) == (3, "default/report")
    assert [one["node"] for one in content["nodes"]] == ["node-0003"]
    plugins = [one["plugin"] for one in content["nodes"][0]["rejections"]]
    assert plugins == ["NodeAffinity", "NodeResourcesFit"]
    code, text = run(kubeconfig, capsys, "db", "-o", "yaml")
    assert (code, yaml.safe_load(text)["node"]) == (0, "node-0001")
    manifest = tmp_path / "pod.yaml"
    manifest.write_text("kind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c}]}")
    code, text = run(kubeconfig, capsys, "-f", str(manifest))
    assert code == 0
    assert text.startswith("pod default/new (priority 0, default-scheduler): fits on 4 of 4 nodes")


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        pytest.param(["gone"], 1, 'pods "gone" not found', id="no such pod"),
        pytest.param(["db", "--node=x"], 1, "node x: not found among 4 nodes", id="no such node"),
        pytest.param(["deployment/db"], 2, "explains pods only", id="kind"),
        pytest.param([], 2, "give a pod's name, or -f FILE", id="nothing"),
        pytest.param(["db", "-f", "x"], 2, "give a pod's name, or -f FILE", id="both"),
    ],
)
def test_what_is_wrong_is_said(kubeconfig, capsys, arguments, code, problem):
    assert execute(["explain", f"--kubeconfig={kubeconfig}", *arguments]) == code
    assert problem in capsys.readouterr().err
