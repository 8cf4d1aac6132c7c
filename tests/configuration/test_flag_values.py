"""The command line as /flagz shows it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import pytest

from ksched.configuration.flags import add_run_flags, run_options
from ksched.redaction import REDACTED


def shown(*arguments: str) -> Mapping[str, str]:
    parser = argparse.ArgumentParser(prog="ksched run")
    add_run_flags(parser)
    return run_options(parser.parse_args(arguments)).flags


def test_every_flag_is_shown_with_its_default() -> None:
    parser = argparse.ArgumentParser(prog="ksched run")
    add_run_flags(parser)
    flags = shown()
    names = {name.lstrip("-") for one in parser._actions for name in one.option_strings}
    assert set(flags) == names - {"h", "help"}
    expected = {
        "bind-address": "0.0.0.0",
        "secure-port": "10259",
        "leader-elect": "true",
        "leader-elect-lease-duration": "15s",
        "leader-elect-resource-name": "kube-scheduler",
        "kube-api-qps": "50",
        "kube-api-burst": "100",
        "profiling": "true",
        "authentication-tolerate-lookup-failure": "true",
        "authentication-token-webhook-cache-ttl": "10s",
        "authorization-always-allow-paths": "[/healthz,/readyz,/livez]",
        "authorization-kubeconfig": "",
        "tls-cipher-suites": "[]",
        "tls-sni-cert-key": "[]",
        "requestheader-allowed-names": "[]",
        "requestheader-username-headers": "[x-remote-user]",
        "feature-gates": "",
        "config": "",
        "seed": "",
        "v": "0",
    }
    assert {name: flags[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("argument", "name", "value"),
    [
        ("--leader-elect=0", "leader-elect", "false"),
        ("--leader-elect-lease-duration=90s", "leader-elect-lease-duration", "1m30s"),
        ("--kube-api-qps=12.5", "kube-api-qps", "12.5"),
        ("--insecure-loopback", "bind-address", "127.0.0.1"),
        ("-v3", "v", "3"),
        ("--seed=0", "seed", "0"),
        ("--permit-port-sharing=true", "permit-port-sharing", "true"),
        ("--vmodule=queue=4", "vmodule", "queue=4"),
        ("--tls-private-key-file=/k --tls-cert-file=/c", "tls-private-key-file", "/k"),
        ("--authorization-kubeconfig=/z", "authorization-kubeconfig", "/z"),
    ],
)
def test_given_values_are_written_as_go_does(argument: str, name: str, value: str) -> None:
    assert shown(*argument.split())[name] == value


def test_gates_given_several_times_are_one_value() -> None:
    gates = shown(
        "--feature-gates=GangScheduling=true,ComponentFlagz=false",
        "--feature-gates=GangScheduling=false",
    )
    assert gates["feature-gates"] == "ComponentFlagz=false,GangScheduling=false"


def test_lists_given_several_times_are_one_list() -> None:
    names = shown("--requestheader-allowed-names=a,b", "--requestheader-allowed-names=c")
    assert names["requestheader-allowed-names"] == "[a,b,c]"


def test_pairs_of_certificate_and_key_are_shown_as_they_are_given() -> None:
    pairs = shown("--tls-sni-cert-key=/c,/k", "--tls-sni-cert-key=/d, /l:*.example.com,b")
    assert pairs["tls-sni-cert-key"] == "[/c,/k;/d,/l:*.example.com,b]"


def test_secrets_are_redacted() -> None:
    flags = shown("--master=https://ada:lovelace@10.0.0.1:6443/?token=abc")
    assert "lovelace" not in str(flags)
    assert "abc" not in flags["master"]
    assert REDACTED in flags["master"]
    assert "10.0.0.1:6443" in flags["master"]
