"""docs/what_if.md: every command prints what the page shows.

``UPDATE_PAGES=1`` writes the output into the page. Covers ``ksched.commands.what_if`` and
``ksched.commands.read_only_access``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from ksched.cli import execute
from lab.documented_commands import check_page
from lab.embedded_process import embedded_server, wait_until

PAGE = Path(__file__).parent.parent.parent / "docs" / "what_if.md"
PATHS = {"Pod": "/api/v1", "Deployment": "/apis/apps/v1"}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory):
    """An API server of its own process with the objects of the page."""
    with embedded_server(tmp_path_factory.mktemp("what-if"), 4) as server:
        (manifests,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.M | re.DOTALL)
        for manifest in yaml.safe_load_all(manifests):
            kind = manifest["kind"]
            server.post(f"{PATHS[kind]}/namespaces/default/{kind.lower()}s", manifest)
        sets = f"{server.url}/apis/apps/v1/namespaces/default/replicasets"
        wait_until(lambda: json.load(urllib.request.urlopen(sets, timeout=10))["items"])
        yield server.kubeconfig


def run(kubeconfig, capsys, *arguments):
    code = execute(["what-if", f"--kubeconfig={kubeconfig}", *arguments])
    return code, capsys.readouterr().out


@pytest.mark.real_time
def test_the_page_shows_what_is_printed(kubeconfig, capsys):
    shown = check_page(PAGE, "what-if", lambda words: run(kubeconfig, capsys, *words)[1])
    assert shown >= 4


@pytest.mark.real_time
def test_output_for_programs_and_for_browsers(kubeconfig, capsys, tmp_path):
    html = tmp_path / "after.html"
    code, text = run(kubeconfig, capsys, "--drain=node-0001", "-o=json", f"--html={html}")
    content = json.loads(text)
    assert (code, content["changes"]) == (3, ["drain node-0001"])
    assert {one["before"] for one in content["fates"]} == {"node-0001"}
    assert html.read_text().startswith("<!DOCTYPE html>")
    code, text = run(kubeconfig, capsys, "--scale=deployment/api=2", "-o=yaml")
    assert (code, [bool(one["after"]) for one in yaml.safe_load(text)["fates"]]) == (
        0,
        [True, True],
    )


@pytest.mark.real_time
def test_the_same_command_is_a_plugin_of_kubectl(kubeconfig):
    program = str(Path(sys.executable).with_name("kubectl-ksched"))
    command = [program, "what-if", f"--kubeconfig={kubeconfig}", "--capacity=pod/db-0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "more of pod default/db-0 fit" in done.stdout


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        pytest.param(
            ["--drain", "n1"],
            1,
            "--drain: no node is named n1; there are node-0001, node-0002, node-0003, node-0004",
            id="no such node",
        ),
        pytest.param(["--add-nodes=1", "--like=x"], 1, "--like: no node is named x", id="like"),
        pytest.param(
            ["--scale=deployment/x=2", "-n", "shop"],
            1,
            "--scale: no deployment is named x in namespace shop",
            id="no such deployment",
        ),
        pytest.param(["--scale=web=2"], 2, "wanted deployment/NAME=REPLICAS", id="no kind"),
        pytest.param(
            ["--remove-taint", "team"], 1, "team is not on any of 4 nodes; there are no", id="taint"
        ),
        pytest.param(["--add-nodes=3"], 2, "--like NODE go together", id="like what"),
        pytest.param(
            ["--add-nodes=-3", "--like=node-0001"], 2, "wanted 1 to 5000", id="fewer nodes"
        ),
        pytest.param([], 2, "nothing to try: give --drain", id="nothing"),
        pytest.param(["--capacity"], 2, "give a pod's name, or -f FILE", id="capacity of what"),
        pytest.param(["--capacity=job/x"], 2, "wanted pod/NAME or -f FILE", id="capacity of a job"),
        pytest.param(["-f", "x"], 2, "give --capacity too", id="a file for nothing"),
        pytest.param(["--capacity=pod/x"], 1, 'pods "x" not found', id="no such pod"),
        pytest.param(["--capacity", "-f", "/no"], 2, "-f: cannot read /no", id="no file"),
        pytest.param(["--drain=node-0001", "--html=/no/x"], 2, "cannot write /no/x", id="html"),
        pytest.param(["--config=/no"], 2, "/no", id="no configuration"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(kubeconfig, capsys, arguments, code, problem):
    assert execute(["what-if", f"--kubeconfig={kubeconfig}", *arguments]) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert problem in lines[0]


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("kind: Service", "has Service, wanted a Pod", id="no pod"),
        pytest.param("{", "cannot read", id="no YAML"),
        pytest.param(
            "kind: Pod\nmetadata: {name: x}\nspec: {containers: 5}",
            "containers",
            id="no containers",
        ),
        pytest.param(
            "kind: Pod\nmetadata: {name: x}\n"
            "spec: {containers: [{name: c, resources: {requests: {cpu: lots}}}]}",
            "lots",
            id="no quantity",
        ),
    ],
)
def test_a_bad_manifest_is_named(kubeconfig, capsys, tmp_path, text, problem):
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(text)
    arguments = ["what-if", f"--kubeconfig={kubeconfig}", "--capacity", "-f", str(manifest)]
    assert execute(arguments) in (1, 2)
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert problem in printed
