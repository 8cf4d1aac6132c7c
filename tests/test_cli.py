"""The command line, in process: what it prints and the code it ends with.

Covers ``ksched.commands.apiserver``, ``ksched.commands.check_config``,
``ksched.commands.check_plugin``, ``ksched.commands.kubelet`` and ``ksched.commands.run`` too.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
from types import SimpleNamespace

import pytest

from ksched import __version__
from ksched.apiserver.http_listener import write_kubeconfig
from ksched.cli import execute
from ksched.framework import FilterDependsOn, Scope
from ksched.framework.runtime import registry
from ksched.framework.runtime.installed_plugins import Offer

VALID = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
"""
BROKEN = f"""\
{VALID}parallelism: -1
podMaxBackoffSeconds: 0
flavour: sweet
"""


@pytest.fixture
def config(tmp_path):
    def write(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture(autouse=True)
def _logging_is_left_alone():
    """``run`` takes over the process's logging; the test run wants it back."""
    loggers = [logging.getLogger(name) for name in ("", "ksched", "ksched.daemon")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch, tmp_path):
    """No cluster can be found by accident."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        execute(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"ksched {__version__}\n"


def test_no_command_prints_the_help(capsys):
    assert execute([]) == 2

    printed = capsys.readouterr().err
    for command in ("run", "check-config", "apiserver"):
        assert f"    {command}" in printed


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["fly"], "invalid choice: 'fly'", id="unknown command"),
        pytest.param(["run", "--wings=2"], "unrecognized arguments: --wings=2", id="unknown flag"),
        pytest.param(["run", "now"], "unrecognized arguments: now", id="positional argument"),
        pytest.param(["run", "--secure-port=x"], "must be a port", id="nonsense value"),
        pytest.param(["check-config"], "required: FILE", id="missing argument"),
        pytest.param(["apiserver", "--port=many"], "invalid int value", id="apiserver"),
    ],
)
def test_bad_usage_ends_with_2(capsys, arguments, complaint):
    with pytest.raises(SystemExit) as ended:
        execute(arguments)

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "check-config", "apiserver", "kubelet"])
def test_every_command_explains_itself(capsys, command):
    with pytest.raises(SystemExit) as ended:
        execute([command, "--help"])

    assert ended.value.code == 0
    assert f"usage: ksched {command}" in capsys.readouterr().out


@pytest.fixture
def nobody(tmp_path):
    """A kubeconfig of an API server that is not there."""
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, "http://127.0.0.1:1")
    return f"--kubeconfig={path}"


@pytest.mark.parametrize("command", [["explain", "web"], ["what-if", "--drain=n"], ["shadow"]])
def test_without_an_api_server_nothing_is_waited_for(capsys, nobody, command):
    assert execute([*command, nobody]) == 1

    assert capsys.readouterr().err.startswith("error: no answer from the API server: GET /version")


def test_an_interruption_is_no_traceback(monkeypatch):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("ksched.commands.plugins.execute", interrupted)

    assert execute(["plugins"]) == 130


# -- check-config -------------------------------------------------------------------------------


def test_good_configuration_is_called_good(capsys, config):
    path = config(VALID + "profiles: [{schedulerName: a}, {schedulerName: b}]\n")

    assert execute(["check-config", path]) == 0
    assert capsys.readouterr().out == f"{path}: ok, profiles: a, b\n"


def test_all_problems_of_a_configuration_are_listed(capsys, config):
    assert execute(["check-config", config(BROKEN)]) == 2

    problems = capsys.readouterr().err.splitlines()
    assert len(problems) == 3
    assert [problem.split(":")[1].split()[0] for problem in problems] == [
        "unknown",
        "parallelism",
        "podMaxBackoffSeconds",
    ]


LUCK = "profiles: [{plugins: {score: {enabled: [{name: Luck}]}}}]\n"


@pytest.mark.parametrize("command", [["check-config"], ["run", "--config"]], ids=lambda c: c[0])
def test_plugin_that_does_not_exist_is_named_beside_other_problems(capsys, config, command):
    path = config(VALID + "parallelism: 1\nparallelism: 0\n" + LUCK)

    assert execute([*command, path]) == 2
    assert capsys.readouterr().err.splitlines() == [
        'error: line 4: key "parallelism" already set in map',
        'error: profiles[0].plugins.score.enabled[0].name: plugin "Luck" does not exist',
        "error: parallelism: Invalid value: 0: should be an integer value greater than zero",
    ]


@pytest.fixture
def install(monkeypatch):
    """Make a plugin available as an installed package would."""

    def install(**attributes):
        offer = Offer("Luck", "luck", "1.0", "tests_luck:make")
        monkeypatch.setattr(registry, "offers", lambda: [offer])
        plugin = SimpleNamespace(name="Luck", **attributes)
        module = SimpleNamespace(make=lambda args, handle: plugin)
        monkeypatch.setitem(sys.modules, "tests_luck", module)

    return install


def test_plugin_of_an_installed_package_exists(capsys, config, install):
    install(score=lambda state, pod, node: 7)

    assert execute(["check-config", config(VALID + LUCK)]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [["check-config"], ["run", "--master=http://127.0.0.1:9", "--config"]],
    ids=lambda command: command[0],
)
def test_bad_declaration_of_a_plugin_is_a_configuration_error(capsys, config, install, command):
    contradiction = FilterDependsOn(Scope.NODE, changes=lambda state, pod, mark: (None, None))
    install(
        score=lambda state, pod, node: 7,
        filter_nodes=lambda state, pod, nodes: None,
        filter_depends_on=contradiction,
        filter_epoch=lambda state, pod: 0,
        normalise=lambda *args: None,
    )

    assert execute([*command, config(VALID + LUCK)]) == 2
    who = 'profile "default-scheduler": plugin "Luck": '
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert told == [
        f"error: {who}filter_depends_on: changes contradicts scope=Scope.NODE; "
        "it goes with Scope.CLUSTER",
        f"error: {who}unknown attribute filter_epoch, there are filter, filter_depends_on, "
        "filter_nodes",
        f"error: {who}unknown attribute normalise, did you mean normalize?",
    ]


def test_missing_file_is_named(capsys):
    assert execute(["check-config", "/nowhere/config.yaml"]) == 2
    assert "cannot read /nowhere/config.yaml: No such file" in capsys.readouterr().err


def test_warnings_do_not_make_a_configuration_bad(capsys, config):
    path = config(VALID.replace("/v1\n", "/v1beta3\n"))

    assert execute(["check-config", path]) == 0


# -- run ----------------------------------------------------------------------------------------


def test_written_configuration_can_be_read_again(tmp_path, capsys):
    path = str(tmp_path / "written.yaml")

    assert execute(["run", f"--write-config-to={path}"]) == 0
    assert execute(["check-config", path]) == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param([], "kubeconfig: no cluster to talk to", id="no cluster"),
        pytest.param(
            ["--kubeconfig=/nowhere/kc"], "no such file: /nowhere/kc", id="missing kubeconfig"
        ),
        pytest.param(["--config=/nowhere/c"], "cannot read /nowhere/c", id="missing configuration"),
        pytest.param(
            ["--tls-cert-file=/nowhere/c"], "--tls-private-key-file: give both", id="half a pair"
        ),
        pytest.param(
            ["--master=http://127.0.0.1:9", "--tls-cert-file=/x/c", "--tls-private-key-file=/x/k"],
            "--tls-cert-file: cannot use /x/c and /x/k",
            id="missing certificate",
        ),
    ],
)
def test_run_refuses_what_it_cannot_use(capsys, arguments, complaint):
    assert execute(["run", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_flag_that_is_ignored_is_told_before_no_cluster_is_found(capsys, config):
    path = config(VALID)

    assert execute(["run", "--config", path, "--kubeconfig", "/nowhere/kc"]) == 2
    *notes, complaint = capsys.readouterr().err.splitlines()
    assert any("--kubeconfig is ignored because --config is given" in note for note in notes)
    assert "clientConnection.kubeconfig in the file" in complaint


def test_port_in_use_is_named(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code = execute(
            [
                "run",
                "--master=http://127.0.0.1:9",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
            ]
        )

    assert code == 1
    wanted = f"error: --secure-port: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    assert capsys.readouterr().err.endswith(wanted)


# -- apiserver ----------------------------------------------------------------------------------


def test_apiserver_names_a_port_in_use(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert execute(["apiserver", f"--port={port}"]) == 1

    wanted = f"error: --port: cannot listen on port {port}: Address already in use\n"
    assert capsys.readouterr().err == wanted


def test_apiserver_names_a_kubeconfig_it_cannot_write(capsys):
    assert execute(["apiserver", "--port=0", "--kubeconfig-out=/nowhere/kc"]) == 1

    wanted = "error: --kubeconfig-out: cannot write /nowhere/kc: No such file or directory\n"
    assert capsys.readouterr().err == wanted


# -- kubelet ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "code", "complaint"),
    [
        pytest.param("--nodes=0", 2, "--nodes: got 0, wanted at least 1", id="no node"),
        pytest.param("--kubeconfig=/nowhere", 2, "/nowhere", id="no such kubeconfig"),
    ],
)
def test_kubelet_names_what_is_wrong(capsys, flag, code, complaint):
    assert execute(["kubelet", flag]) == code
    assert complaint in capsys.readouterr().err


def test_mistakes_beside_secrets_do_not_quote_them(config, capsys):
    path = config(
        f"""\
{VALID}extenders:
- urlPrefix: me:hunter2@x
- urlPrefix: https://me:hunter2@x
  weight: hunter
  filterVerb: 3
  tlsConfig:
    keyData: '*hunter2*'
"""
    )
    assert execute(["check-config", path]) == 2
    told = capsys.readouterr().err
    assert "extenders[1].tlsConfig.keyData" in told
    assert "hunter2" not in told

    path = config(f"{VALID}extenders:\n- urlPrefix: me:hunter2@x\n")
    assert execute(["check-config", path]) == 2
    told = capsys.readouterr().err
    assert "extenders[0].urlPrefix: must be an http or https URL" in told
    assert "hunter2" not in told


CHECKED_PLUGIN = """\
from ksched.framework import SUCCESS

class Even:
    name = "Even"
    def __init__(self, args, handle):
        self.answers = dict(args or {})
    def pre_bind(self, state, pod, node_name):
        return self.answers.get("answer", SUCCESS)
"""


@pytest.fixture
def checked_plugin(tmp_path, monkeypatch):
    (tmp_path / "even_plugin.py").write_text(CHECKED_PLUGIN)
    (tmp_path / "args.yaml").write_text("answer: 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "even_plugin:Even"
    sys.modules.pop("even_plugin", None)


def test_check_plugin_exit_code_says_whether_there_are_findings(checked_plugin, tmp_path, capsys):
    assert execute(["check-plugin", checked_plugin, "--nodes", "3"]) == 0
    assert "no findings" in capsys.readouterr().out

    file = str(tmp_path / "args.yaml")
    assert execute(["check-plugin", checked_plugin, "--args", file, "--nodes", "3"]) == 1
    printed = capsys.readouterr().out
    assert '1. broken contract: plugin "Even", pre_bind' in printed
    assert "returned 5, wanted a Status" in printed
    assert f"reproduce: ksched check-plugin {checked_plugin} --args {file} --seed 0" in printed


def test_check_plugin_prints_json(checked_plugin, capsys):
    assert execute(["check-plugin", checked_plugin, "--nodes", "3", "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["clean"], report["points"]) == (True, ["preBind"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["no_such_module:Plugin"], "cannot be imported: ModuleNotFoundError"),
        (["NoSuchPlugin"], "no such plugin"),
        (["NodeName", "--args", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_check_plugin_of_no_plugin_is_bad_usage(arguments, complaint, capsys):
    assert execute(["check-plugin", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_check_plugin_needs_nodes(capsys):
    with pytest.raises(SystemExit) as ended:
        execute(["check-plugin", "NodeName", "--nodes", "0"])
    assert ended.value.code == 2
    assert "must be 1 or more" in capsys.readouterr().err
