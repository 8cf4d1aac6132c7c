"""``ksched replay`` as a command, on the journal of a process that was killed.

Covers ``ksched.commands.replay``, ``ksched.commands.structured_output``,
``ksched.journal.replay_rendering``, ``ksched.journal.incident`` and ``ksched.testing.journals``
too.
"""

from __future__ import annotations

import json
import signal
import sys

import pytest

from ksched.cli import execute
from ksched.testing import replay_journal
from lab.child_process import ChildProcess
from lab.embedded_process import embedded_server, wait_until

PODS = "/api/v1/namespaces/default/pods"
OTHER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {filter: {disabled: [{name: NodeResourcesFit}]}}
"""


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    """The journal of a scheduler that was killed after some decisions."""
    folder = tmp_path_factory.mktemp("replay")
    with embedded_server(folder, 3) as server:
        command = [sys.executable, "-m", "ksched", "run", f"--kubeconfig={server.kubeconfig}"]
        command += [
            "--leader-elect=false",
            "--secure-port=0",
            "-v=2",
            f"--journal={folder}/journal",
        ]
        with ChildProcess("ksched", command, folder / "ksched.log") as process:
            wait_until(lambda: "journal begins a file" in process.log())
            for number in range(10):
                requests = {"cpu": "9999"} if number == 9 else {"cpu": "1m"}
                container = {"name": "c", "image": "i", "resources": {"requests": requests}}
                spec = {"containers": [container]}
                server.post(PODS, {"metadata": {"name": f"p{number}"}, "spec": spec})
            wait_until(lambda: number_of_decisions(folder / "journal") == 10)
            process.send_signal(signal.SIGKILL)
            process.wait(10)
    return folder / "journal"


def number_of_decisions(folder):
    from ksched.journal.reading import JournalFile, journal_paths
    from ksched.journal.records import Decided

    file = JournalFile(journal_paths([str(folder)])[0])
    return sum(isinstance(one, Decided) for one in file)


@pytest.mark.real_time
def test_all_the_same(journal, capsys):
    assert execute(["replay", str(journal)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "10 decisions, all the same"
    assert lines[-1].endswith("not ended properly, up to its last record it is complete")


@pytest.mark.real_time
def test_another_configuration(journal, capsys, tmp_path):
    config = tmp_path / "other.yaml"
    config.write_text(OTHER)
    assert execute(["replay", str(journal), f"--config={config}"]) == 3
    printed = capsys.readouterr().out
    assert printed.startswith("10 decisions, 9 the same (90.0 %), 1 different")
    assert "1  NodeResourcesFit  rejected it, and does not now" in printed
    assert execute(["replay", str(journal), f"--config={config}", "-o", "json"]) == 3
    (found,) = json.loads(capsys.readouterr().out)["differences"]
    assert (found["pod"], found["recorded"]) == ("default/p9", "no node")
    assert execute(["replay", str(journal), f"--config={config}", "--pod=p1", "-o", "yaml"]) == 0
    assert "decisions: 1" in capsys.readouterr().out


@pytest.mark.real_time
def test_a_decision_becomes_a_test(journal, capsys, tmp_path):
    test = tmp_path / "test_incident.py"
    arguments = ["replay", str(journal), f"--test-out={test}"]
    assert execute([*arguments, "--pod=p9"]) == 0
    assert "the decision about default/p9; run it with pytest" in capsys.readouterr().out
    space: dict[str, object] = {}
    exec(compile(test.read_text(), test, "exec"), {"__file__": str(test)}, space)
    assert "0/3 nodes are available" in test.read_text()
    assert replay_journal(test.with_suffix(".jsonl.gz")).same == 1
    (name,) = [one for one in space if one.startswith("test_")]
    assert name == "test_default_p9_is_rejected"
    assert execute([*arguments, "--pod=p77"]) == 1
    assert "no decision of the journal is meant" in capsys.readouterr().err


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["/none"], 1, "/none: No such file or directory"),
        (["/none", "--at=noon"], 2, "--at: got noon, wanted a time as"),
        (["/none", "--config=/missing"], 2, "/missing"),
    ],
)
def test_bad_usage(capsys, arguments, code, problem):
    assert execute(["replay", *arguments]) == code
    assert problem in capsys.readouterr().err
