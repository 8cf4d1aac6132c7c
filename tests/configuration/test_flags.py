"""The flags of ``ksched run``. Covers ``ksched.configuration.regular_files`` too."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from ksched.configuration import SchedulerConfiguration
from ksched.configuration.feature_gates import FEATURE_GATES
from ksched.configuration.flags import RunOptions, add_run_flags, run_options
from ksched.configuration.regular_files import MAX_FILE_BYTES
from ksched.configuration.serving_flags import ServingOptions
from ksched.errors import ConfigError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def run(*arguments: str) -> RunOptions:
    parser = argparse.ArgumentParser(prog="ksched run")
    add_run_flags(parser)
    return run_options(parser.parse_args(arguments))


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def test_the_journal_is_off_and_bounded() -> None:
    assert (run().journal, run().journal_bytes) == ("", 512 << 20)
    options = run("--journal=/tmp/j", "--journal-size=2Gi")
    assert (options.journal, options.journal_bytes) == ("/tmp/j", 2 << 30)


def test_without_flags_everything_is_default() -> None:
    assert run() == RunOptions(
        configuration=SchedulerConfiguration(),
        serving=ServingOptions(),
        pod_max_in_unschedulable_pods_seconds=60.0,
        feature_gates={},
        verbosity=0,
        logging_format="text",
        seed=None,
        on_lease_lost="exit",
        notes=(),
    )


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("--leader-elect", True),
        ("--leader-elect=true", True),
        ("--leader-elect=false", False),
        ("--leader-elect=0", False),
        ("--leader-elect=T", True),
    ],
)
def test_booleans_are_spelled_as_in_go(argument: str, value: bool) -> None:
    assert run(argument).configuration.leader_election.leader_elect is value


@pytest.mark.parametrize("arguments", [("-v", "2"), ("-v=2",), ("-v2",), ("--v=2",), ("--v", "2")])
def test_verbosity_is_spelled_as_in_klog(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).verbosity == 2


def test_flags_make_a_configuration_when_there_is_no_file() -> None:
    options = run(
        "--kubeconfig=/etc/k.conf",
        "--kube-api-qps=5000",
        "--kube-api-burst=6000",
        "--profiling=false",
        "--leader-elect-lease-duration=1m",
        "--leader-elect-resource-name=mine",
        "--pod-max-in-unschedulable-pods-duration=5m0s",
        "--master=https://10.0.0.1:6443",
        "--secure-port=0",
        "--bind-address=::1",
        "--logging-format=json",
        "--seed=7",
        "--on-lease-lost=standby",
        "--write-config-to=/tmp/out.yaml",
    )
    config = options.configuration
    assert config.client_connection.kubeconfig == "/etc/k.conf"
    assert (config.client_connection.qps, config.client_connection.burst) == (5000, 6000)
    assert (config.enable_profiling, config.enable_contention_profiling) == (False, False)
    assert config.leader_election.lease_duration_seconds == 60
    assert config.leader_election.resource_name == "mine"
    assert config.leader_election.retry_period_seconds == 2
    assert options.pod_max_in_unschedulable_pods_seconds == 300
    assert (options.master, options.serving.secure_port) == ("https://10.0.0.1:6443", 0)
    assert (options.serving.bind_address, options.logging_format) == ("::1", "json")
    assert (options.seed, options.on_lease_lost) == (7, "standby")
    assert options.write_config_to == "/tmp/out.yaml"
    assert options.notes == ()


def test_a_file_wins_over_deprecated_flags_and_leader_flags_win_over_the_file(
    config_file: Path,
) -> None:
    config_file.write_text(
        HEAD + "clientConnection: {kubeconfig: from-file, qps: 7}\n"
        "leaderElection: {leaderElect: true, resourceName: from-file, leaseDuration: 30s}\n"
    )
    options = run(
        f"--config={config_file}",
        "--kubeconfig=from-flag",
        "--kube-api-qps=9",
        "--profiling=false",
        "--leader-elect=false",
        "--leader-elect-resource-name=from-flag",
    )
    config = options.configuration
    assert config.client_connection.kubeconfig == "from-file"
    assert config.client_connection.qps == 7
    assert config.enable_profiling
    assert config.leader_election.leader_elect is False
    assert config.leader_election.resource_name == "from-flag"
    assert config.leader_election.lease_duration_seconds == 30
    assert options.notes == (
        "--kubeconfig is ignored because --config is given",
        "--kube-api-qps is ignored because --config is given",
        "--profiling is ignored because --config is given",
    )


def test_warnings_of_the_file_are_notes(config_file: Path) -> None:
    config_file.write_text(HEAD + "extenders: [{urlPrefix: x, managedResources: [{name: foo}]}]")
    (note,) = run(f"--config={config_file}").notes
    assert note.startswith("extenders[0].managedResources[0].name: 'foo' has no domain")


def test_the_command_line_of_a_static_pod_works() -> None:
    options = run(
        "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--bind-address=127.0.0.1",
        "--kubeconfig=/etc/kubernetes/scheduler.conf",
        "--leader-elect=true",
    )
    assert options.configuration.client_connection.kubeconfig == "/etc/kubernetes/scheduler.conf"
    assert options.serving.authentication_kubeconfig == "/etc/kubernetes/scheduler.conf"
    assert options.serving.authorization_kubeconfig == "/etc/kubernetes/scheduler.conf"
    assert options.notes == ()


def test_known_feature_gates_are_accepted_and_those_without_effect_noted() -> None:
    options = run(
        "--feature-gates=SchedulerQueueingHints=true,OpportunisticBatching=true",
        "--feature-gates=WorkloadAwarePreemption=true,GenericWorkload=true,GangScheduling=true",
    )
    assert options.feature_gates == {
        "SchedulerQueueingHints": True,
        "OpportunisticBatching": True,
        "WorkloadAwarePreemption": True,
        "GenericWorkload": True,
        "GangScheduling": True,
    }
    [profile] = options.configuration.profiles
    assert profile.plugins.multi_point.enabled[-1].name == "GangScheduling"
    assert options.notes == (
        "feature gate OpportunisticBatching has no effect, ksched does not have this feature",
        "feature gate WorkloadAwarePreemption=true has no effect, "
        "ksched behaves as WorkloadAwarePreemption=false",
    )


def test_every_gate_may_be_given_its_default_and_absent_features_are_noted() -> None:
    gates = ",".join(f"{name}={gate.default}" for name, gate in FEATURE_GATES.items())
    absent = {note.split()[2] for note in run(f"--feature-gates={gates}").notes}
    assert absent == {
        name
        for name, gate in FEATURE_GATES.items()
        if gate.default and name.startswith("OpportunisticBatching")
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unknown=1"], "unrecognized arguments: --unknown=1"),
        (["--leader-el"], "unrecognized arguments: --leader-el"),
        (["file.yaml"], "unrecognized arguments: file.yaml"),
        (["--leader-elect=maybe"], "argument --leader-elect: invalid boolean value 'maybe'"),
        (["--secure-port=65536"], "argument --secure-port: must be a port between 0 and 65535"),
        (["--bind-address=localhost"], "argument --bind-address: must be an IP address"),
        (["--kube-api-burst=4294967296"], "argument --kube-api-burst: must fit in int32"),
        (["--kube-api-qps=nan"], "argument --kube-api-qps: must be a finite number, got 'nan'"),
        (["--kube-api-qps=x"], "argument --kube-api-qps: could not convert string to float: 'x'"),
        (["--v=much"], "argument -v/--v: invalid int value: 'much'"),
        (["--logging-format=xml"], "argument --logging-format: invalid choice: 'xml'"),
        (["--journal-size=1Mi"], "argument --journal-size: must be at least 16Mi, got '1Mi'"),
        (["--on-lease-lost=panic"], "argument --on-lease-lost: invalid choice: 'panic'"),
        (
            ["--leader-elect-lease-duration=15"],
            "argument --leader-elect-lease-duration: invalid duration '15'",
        ),
        (["--feature-gates=No=true"], "argument --feature-gates: unrecognized feature gate: No"),
        (["--feature-gates=AllBeta"], "argument --feature-gates: missing bool value for AllBeta"),
        (
            ["--feature-gates=AllBeta=x"],
            "argument --feature-gates: invalid boolean value 'x'",
        ),
        (
            ["--feature-gates=SidecarContainers=false"],
            "cannot set feature gate SidecarContainers to false, feature is locked to true",
        ),
    ],
)
def test_a_bad_command_line_ends_with_code_2_and_names_the_flag(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        run(*arguments)
    assert exit_.value.code == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.startswith("usage: ksched run [flags]\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--leader-elect-lease-duration=5s"],
            'leaderElection.leaseDuration: Invalid value: "5s": '
            "must be greater than `RenewDeadline`",
        ),
        (["--kube-api-burst=-1"], "clientConnection.burst: Invalid value: -1: must be non-neg"),
        (["--config=/nonexistent"], "--config: cannot read /nonexistent: No such file"),
        (["--tls-cert-file=x"], "--tls-cert-file and --tls-private-key-file: give both or none"),
    ],
)
def test_flags_that_make_no_sense_together_are_configuration_errors(
    arguments: list[str], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        run(*arguments)
    (found,) = caught.value.problems
    assert found.startswith(problem)


def test_a_file_in_another_encoding_is_named(config_file: Path) -> None:
    config_file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"--config: .*config.yaml is not UTF-8"):
        run(f"--config={config_file}")


def test_a_file_must_be_a_regular_one(config_file: Path, tmp_path: Path) -> None:
    config_file.write_text(HEAD)
    link = tmp_path / "link"
    link.symlink_to(config_file)
    assert run(f"--config={link}") == run(f"--config={config_file}")

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(ConfigError, match=f"--config: cannot read {path}: not a regular"):
            run(f"--config={path}")
    with pytest.raises(ConfigError, match="Is a directory"):
        run(f"--config={tmp_path}")


def test_a_file_is_not_read_without_end(config_file: Path) -> None:
    config_file.write_text(HEAD)
    with config_file.open("ab") as file:
        file.write(b"#" * (MAX_FILE_BYTES - file.tell()))
    run(f"--config={config_file}")
    with config_file.open("ab") as file:
        file.write(b"#")
    with pytest.raises(ConfigError, match=r"cannot read .*config.yaml: more than 4 MiB"):
        run(f"--config={config_file}")


def test_every_flag_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run("--help")
    assert exit_.value.code == 0
    assert "--on-lease-lost" in capsys.readouterr().out
