"""``ksched shadow`` as a command. Covers ``ksched.commands.shadow``."""

from __future__ import annotations

import json
import threading
import urllib.request

import pytest

from ksched.cli import execute
from lab.control_plane import free_ports
from lab.embedded_process import embedded_server, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with embedded_server(tmp_path_factory.mktemp("shadow"), 3) as server:
        yield server


def bind_one(server, port):
    """Play the live scheduler for one pod, once the shadow is there."""
    pods = "/api/v1/namespaces/default/pods"
    wait_until(lambda: is_following(port))
    spec = {"containers": [{"name": "c", "image": "i"}]}
    server.post(pods, {"metadata": {"name": "web"}, "spec": spec})
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-0002"}
    server.post(f"{pods}/web/binding", {"metadata": {"name": "web"}, "target": target})


def is_following(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.mark.real_time
def test_one_decision_is_judged_and_reported(server, capsys):
    (port,) = free_ports(1)
    live = threading.Thread(target=bind_one, args=(server, port))
    live.start()
    options = [f"--kubeconfig={server.kubeconfig}", "--pods=1", "--for=60", "-o", "json"]
    assert execute(["shadow", *options, f"--metrics=127.0.0.1:{port}"]) == 0
    live.join()
    printed = capsys.readouterr()
    assert "/metrics" in printed.err
    assert json.loads(printed.out)["outcomes"] == {"equal_score": 1}


@pytest.mark.real_time
def test_the_time_is_over(server, capsys):
    assert execute(["shadow", f"--kubeconfig={server.kubeconfig}", "--for=0.1"]) == 0
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
    assert execute(["shadow", f"--kubeconfig={server.kubeconfig}", *arguments]) == 2
    assert problem in capsys.readouterr().err
