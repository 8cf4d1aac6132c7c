"""The flags of ``ksched run``: kube-scheduler's, and a few more.

A configuration file takes precedence over the equivalent deprecated flags; the leader election
flags take precedence over the file. Flags of kube-scheduler without a meaning here are accepted
with a note, so that a static pod manifest works when only the command is changed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ksched.api.quantity import parse_quantity
from ksched.configuration.durations import format_duration, parse_duration
from ksched.configuration.feature_gates import gate_notes, parse_feature_gates
from ksched.configuration.flag_values import DURATION, flag_values
from ksched.configuration.gated_plugins import enable_gated_plugins
from ksched.configuration.loading import load_config
from ksched.configuration.model import ClientConnection, LeaderElection, SchedulerConfiguration
from ksched.configuration.regular_files import read_regular
from ksched.configuration.serving_flags import (
    PROXY_FLAGS,
    FlagGroup,
    ServingOptions,
    add_serving_flags,
    add_switch,
    checked,
    proxy_notes,
    serving_options,
)
from ksched.configuration.validation import validate
from ksched.errors import ConfigError

# kube-scheduler: 5 minutes. A retry is cheap here, so a lost wake-up is corrected sooner.
POD_MAX_IN_UNSCHEDULABLE_PODS_SECONDS: Final = 60.0

JOURNAL_BYTES: Final = 512 << 20
_LEAST_JOURNAL_BYTES: Final = 16 << 20

# Flag -> the leader election field that it sets.
_LEADER_FLAGS: Final = {
    "leader_elect": "leader_elect",
    "leader_elect_lease_duration": "lease_duration_seconds",
    "leader_elect_renew_deadline": "renew_deadline_seconds",
    "leader_elect_retry_period": "retry_period_seconds",
    "leader_elect_resource_lock": "resource_lock",
    "leader_elect_resource_name": "resource_name",
    "leader_elect_resource_namespace": "resource_namespace",
}
_CLIENT_FLAGS: Final = {
    "kubeconfig": "kubeconfig",
    "kube_api_content_type": "content_type",
    "kube_api_qps": "qps",
    "kube_api_burst": "burst",
}
_PROFILING_FLAGS: Final = {
    "profiling": "enable_profiling",
    "contention_profiling": "enable_contention_profiling",
}

_IGNORED_FLAGS: Final[Mapping[str, str]] = {
    "http2-max-streams-per-connection": "the endpoints speak HTTP/1.1",
    "tls-curve-preferences": "the curves are OpenSSL's",
    "emulated-version": "there is one version",
    "min-compatibility-version": "there is one version",
    "allow-metric-labels": "all labels are allowed",
    "allow-metric-labels-manifest": "all labels are allowed",
    "disabled-metrics": "all metrics are served",
    "show-hidden-metrics-for-version": "no metric is hidden",
    "log-flush-frequency": "logs are not buffered",
    "log-json-info-buffer-size": "logs are not buffered",
    "log-text-info-buffer-size": "logs are not buffered",
    "vmodule": "there is one verbosity",
}
_IGNORED_SWITCHES: Final[Mapping[str, str]] = {
    "disable-http2-serving": "the endpoints speak HTTP/1.1",
    "emulation-forward-compatible": "there is one version",
    "log-json-split-stream": "logs go to one stream",
    "log-text-split-stream": "logs go to one stream",
    "permit-address-sharing": "an address is never shared",
    "permit-port-sharing": "a port is never shared",
}


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file and how it is read, together with the flags of the process."""

    path: str
    text: str
    """What it said when the process started."""
    load: Callable[[str, list[str]], SchedulerConfiguration]
    """Makes a configuration of a text; adds notes, raises ``ConfigError``."""

    def read(self) -> str:
        """What the file says now; raises ``ConfigError``."""
        return _read(self.path)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The resolved options of ``ksched run``."""

    configuration: SchedulerConfiguration
    """The file's configuration or the flags', complete and valid."""
    write_config_to: str = ""
    """Write the configuration there and exit; empty to run."""
    master: str = ""
    """Address of the API server; overrides the kubeconfig's."""
    serving: ServingOptions = field(default_factory=ServingOptions)
    """Its own port."""
    pod_max_in_unschedulable_pods_seconds: float = POD_MAX_IN_UNSCHEDULABLE_PODS_SECONDS
    feature_gates: Mapping[str, bool]
    verbosity: int = 0
    logging_format: str = "text"
    seed: int | None = None
    """Makes the choice among equal nodes reproducible."""
    journal: str = ""
    """The folder of the journal; empty for none."""
    journal_bytes: int = JOURNAL_BYTES
    on_lease_lost: str = "exit"
    """``exit`` as kube-scheduler, or ``standby`` to campaign again."""
    notes: tuple[str, ...] = ()
    """Flags without effect, and the file's warnings; for the log at start-up."""
    flags: Mapping[str, str] = field(default_factory=dict, compare=False)
    """All flags as they are shown, without secrets."""
    config_file: ConfigFile | None = field(default=None, compare=False)
    """Where the configuration is from, to load it again."""


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; a parser with them ends the process with code 2 on a bad command line."""
    # An abbreviation that is unique today could change its meaning with the next flag.
    parser.allow_abbrev = False
    parser.usage = "%(prog)s [flags]"
    _add_misc(parser.add_argument_group("misc flags"))
    add_serving_flags(parser)
    _add_leader_election(parser.add_argument_group("leader election flags"))
    _add_deprecated(parser.add_argument_group("deprecated flags, ignored with --config"))
    group = parser.add_argument_group("flags accepted for compatibility, without effect")
    for name, reason in _IGNORED_FLAGS.items():
        group.add_argument(f"--{name}", metavar="VALUE", help=reason)
    for name, reason in _IGNORED_SWITCHES.items():
        add_switch(group, name, reason)


def run_options(flags: argparse.Namespace, available: Collection[str] | None = None) -> RunOptions:
    """Resolve parsed flags, reading the configuration file; raise ``ConfigError``.

    ``available`` are the names of the plugins that exist, if that is known already.
    """
    notes: list[str] = []
    gates: dict[str, bool] = {}
    for part in flags.feature_gates or ():
        gates.update(part)
    notes += gate_notes(gates)
    for name, reason in (*_IGNORED_FLAGS.items(), *_IGNORED_SWITCHES.items()):
        if getattr(flags, name.replace("-", "_")) is not None:
            notes.append(f"--{name} has no effect: {reason}")
    text = _read(flags.config) if flags.config else None
    configuration = _configuration(flags, text, notes, available, gates)
    problems: list[str] = []
    serving = serving_options(flags, problems)
    notes += proxy_notes(flags)
    if problems:
        raise ConfigError(problems)
    return RunOptions(
        configuration=configuration,
        write_config_to=flags.write_config_to,
        master=flags.master,
        serving=serving,
        pod_max_in_unschedulable_pods_seconds=flags.pod_max_in_unschedulable_pods_duration,
        feature_gates=gates,
        verbosity=flags.v,
        logging_format=flags.logging_format,
        seed=flags.seed,
        journal=flags.journal,
        journal_bytes=flags.journal_size,
        on_lease_lost=flags.on_lease_lost,
        notes=tuple(notes),
        flags=flag_values(_declared(), flags, _defaults(serving)),
        config_file=_config_file(flags, text, available, gates),
    )


def _config_file(
    flags: argparse.Namespace,
    text: str | None,
    available: Collection[str] | None,
    gates: Mapping[str, bool],
) -> ConfigFile | None:
    if text is None:
        return None

    def load(text: str, notes: list[str]) -> SchedulerConfiguration:
        return _configuration(flags, text, notes, available, gates)

    return ConfigFile(flags.config, text, load)


def _declared() -> list[argparse.Action]:
    parser = argparse.ArgumentParser(add_help=False)
    add_run_flags(parser)
    return parser._actions


def _defaults(serving: ServingOptions) -> dict[str, Any]:
    """Return the values of flags that are None when they are not given."""
    configuration = SchedulerConfiguration()
    sections: Sequence[tuple[Mapping[str, str], object]] = (
        (_LEADER_FLAGS, configuration.leader_election),
        (_CLIENT_FLAGS, configuration.client_connection),
        (_PROFILING_FLAGS, configuration),
        (PROXY_FLAGS, serving.front_proxy),
    )
    values = {
        flag: getattr(section, name) for names, section in sections for flag, name in names.items()
    }
    switches = dict.fromkeys((name.replace("-", "_") for name in _IGNORED_SWITCHES), False)
    return {
        **values,
        **switches,
        "bind_address": serving.bind_address,
        "tls_sni_cert_key": (),
        "insecure_loopback": False,
        "authentication_skip_lookup": False,
        "authentication_tolerate_lookup_failure": True,
    }


def _configuration(
    flags: argparse.Namespace,
    text: str | None,
    notes: list[str],
    available: Collection[str] | None,
    gates: Mapping[str, bool],
) -> SchedulerConfiguration:
    """The configuration of flags and the text of the file, if there is one."""
    if text is not None:
        configuration = load_config(text, notes.append, available)
        notes += [
            f"--{flag.replace('_', '-')} is ignored because --config is given"
            for flag in (*_CLIENT_FLAGS, *_PROFILING_FLAGS)
            if getattr(flags, flag) is not None
        ]
    else:
        client, profiling = _given(flags, _CLIENT_FLAGS), _given(flags, _PROFILING_FLAGS)
        configuration = SchedulerConfiguration(
            client_connection=ClientConnection(**client), **profiling
        )
    if leader := _given(flags, _LEADER_FLAGS):
        election = LeaderElection(**{**dict(configuration.leader_election), **leader})
        configuration = configuration.model_copy(update={"leader_election": election})
    validate(configuration)
    return enable_gated_plugins(configuration, gates)


def _read(path: str) -> str:
    try:
        return read_regular(path).decode()
    except OSError as error:
        raise ConfigError([f"--config: cannot read {path}: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"--config: {path} is not UTF-8: {error.reason}"]) from error


def _given(flags: argparse.Namespace, names: Mapping[str, str]) -> dict[str, Any]:
    values = {field: getattr(flags, flag) for flag, field in names.items()}
    return {field: value for field, value in values.items() if value is not None}


# -- declarations -------------------------------------------------------------------------------


def _add_misc(group: FlagGroup) -> None:
    group.add_argument("--config", default="", metavar="FILE", help="configuration file")
    group.add_argument(
        "--write-config-to", default="", metavar="FILE", help="write the configuration and exit"
    )
    group.add_argument(
        "--master", default="", metavar="URL", help="API server; overrides the kubeconfig's"
    )
    group.add_argument(
        "--pod-max-in-unschedulable-pods-duration",
        type=checked(parse_duration),
        default=POD_MAX_IN_UNSCHEDULABLE_PODS_SECONDS,
        metavar=DURATION,
        help="maximum time in unschedulablePods without an event "
        f"(default {format_duration(POD_MAX_IN_UNSCHEDULABLE_PODS_SECONDS)})",
    )
    group.add_argument(
        "--feature-gates",
        type=checked(parse_feature_gates),
        action="append",
        metavar="NAME=BOOL,...",
        help="accepted with a note; ksched behaves as the defaults of v1.36",
    )
    group.add_argument("-v", "--v", type=int, default=0, metavar="LEVEL", help="log verbosity")
    group.add_argument("--logging-format", choices=("text", "json"), default="text")
    group.add_argument(
        "--seed", type=int, metavar="N", help="make the choice among equal nodes reproducible"
    )
    group.add_argument(
        "--journal",
        default="",
        metavar="DIR",
        help="append what is seen and decided to files there, for ksched replay",
    )
    group.add_argument(
        "--journal-size",
        type=checked(_parse_size),
        default=JOURNAL_BYTES,
        metavar="QUANTITY",
        help="most that the journal takes on disk, oldest files go first (default 512Mi)",
    )
    group.add_argument(
        "--on-lease-lost",
        choices=("exit", "standby"),
        default="exit",
        help="exit with code 1 as kube-scheduler, or campaign again (default exit)",
    )


def _add_leader_election(group: FlagGroup) -> None:
    add_switch(group, "leader-elect", "elect a leader before scheduling (default true)")
    for name, default in (("lease-duration", 15), ("renew-deadline", 10), ("retry-period", 2)):
        group.add_argument(
            f"--leader-elect-{name}",
            type=checked(parse_duration),
            metavar=DURATION,
            help=f"default {default}s",
        )
    group.add_argument("--leader-elect-resource-lock", metavar="KIND", help="default leases")
    group.add_argument(
        "--leader-elect-resource-name", metavar="NAME", help="default kube-scheduler"
    )
    group.add_argument(
        "--leader-elect-resource-namespace", metavar="NAMESPACE", help="default kube-system"
    )


def _add_deprecated(group: FlagGroup) -> None:
    group.add_argument("--kubeconfig", metavar="FILE", help="credentials and address")
    group.add_argument("--kube-api-content-type", metavar="TYPE", help="ksched speaks JSON")
    group.add_argument("--kube-api-qps", type=checked(_parse_rate), metavar="N", help="default 50")
    group.add_argument(
        "--kube-api-burst", type=checked(_parse_int32), metavar="N", help="default 100"
    )
    add_switch(group, "profiling", "serve profiles (default true)")
    add_switch(group, "contention-profiling", "accepted: locks are not profiled")


def _parse_rate(text: str) -> float:
    rate = float(text)
    if not math.isfinite(rate):
        raise ValueError(f"must be a finite number, got {text!r}")
    return rate


def _parse_size(text: str) -> int:
    size = int(parse_quantity(text))
    if size < _LEAST_JOURNAL_BYTES:
        raise ValueError(f"must be at least 16Mi, got {text!r}")
    return size


def _parse_int32(text: str) -> int:
    number = int(text)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"must fit in int32, got {text!r}")
    return number
