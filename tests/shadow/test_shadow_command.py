"""``ksched shadow`` as a command. Covers ``ksched.commands.shadow``."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.request

import pytest

from ksched.cli import execute
from lab.child_process import ChildProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shadow")
    path, log = folder / "kubeconfig", folder / "log"
    command = [sys.executable, "-m", "ksched", "apiserver", "--port=0", "--nodes=3"]
    with ChildProcess("apiserver", [*command, f"--kubeconfig-out={path}"], log):
        deadline = time.monotonic() + 60
        while "serving" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield str(path), log.read_text().split()[-1]


def post(url, path, body):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), headers)
    urllib.request.urlopen(request, timeout=10).close()


def bind_one(url):
    """Play the live scheduler for one pod, once the shadow is there."""
    pods = "/api/v1/namespaces/default/pods"
    time.sleep(3)
    spec = {"containers": [{"name": "c", "image": "i"}]}
    post(url, pods, {"metadata": {"name": "web"}, "spec": spec})
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-0002"}
    post(url, f"{pods}/web/binding", {"metadata": {"name": "web"}, "target": target})


@pytest.mark.real_time
def test_one_decision_is_judged_and_reported(server, capsys):
    kubeconfig, url = server
    live = threading.Thread(target=bind_one, args=(url,))
    live.start()
    options = [f"--kubeconfig={kubeconfig}", "--pods=1", "--for=60", "-o", "json"]
    assert execute(["shadow", *options, "--metrics=127.0.0.1:0"]) == 0
    live.join()
    printed = capsys.readouterr()
    assert "/metrics" in printed.err
    assert json.loads(printed.out)["outcomes"] == {"equal_score": 1}


@pytest.mark.real_time
def test_the_time_is_over(server, capsys):
    assert execute(["shadow", f"--kubeconfig={server[0]}", "--for=0.1"]) == 0
    assert capsys.readouterr().out == "no decisions were judged\n"


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--metrics=here"], "--metrics: got here, wanted HOST:PORT"),
        (["--pods=-1"], "wanted a positive number"),
        (["--live-config=/none"], "/none"),
    ],
)
def test_bad_usage(server, capsys, arguments, problem):
    assert execute(["shadow", f"--kubeconfig={server[0]}", *arguments]) == 2
    assert problem in capsys.readouterr().err
