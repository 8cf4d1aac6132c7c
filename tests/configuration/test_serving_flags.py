from __future__ import annotations

import argparse

import pytest

from ksched.configuration.flags import add_run_flags, run_options
from ksched.configuration.front_proxy import FrontProxy
from ksched.configuration.serving_flags import NamedPair, ServingOptions
from ksched.errors import ConfigError


def serving(*arguments: str) -> ServingOptions:
    parser = argparse.ArgumentParser(prog="ksched run")
    add_run_flags(parser)
    return run_options(parser.parse_args(arguments)).serving


def test_the_defaults_are_those_of_kube_scheduler() -> None:
    options = serving()
    assert (options.bind_address, options.secure_port) == ("0.0.0.0", 10259)
    assert not options.insecure_loopback
    assert options.authorization_always_allow_paths == ("/healthz", "/readyz", "/livez")
    assert options.authentication_tolerate_lookup_failure
    assert not options.authentication_skip_lookup
    seconds = (
        options.authentication_cache_seconds,
        options.authorized_cache_seconds,
        options.unauthorized_cache_seconds,
    )
    assert seconds == (10, 10, 10)


def test_everything_given_is_kept() -> None:
    assert serving(
        "--bind-address=10.0.0.7",
        "--secure-port=11259",
        "--cert-dir=/certs",
        "--tls-cert-file=/c",
        "--tls-private-key-file=/k",
        "--tls-sni-cert-key=/c1, /k1",
        "--tls-sni-cert-key=/c2,/k2:*.example.com, ::1",
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites=TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "--client-ca-file=/ca",
        "--requestheader-client-ca-file=/proxies",
        "--requestheader-allowed-names=aggregator",
        "--requestheader-allowed-names=front,back",
        "--requestheader-username-headers=X-User, X-Remote-User",
        "--requestheader-uid-headers=X-Remote-Uid",
        "--requestheader-group-headers=",
        "--requestheader-extra-headers-prefix=X-E-",
        "--authentication-kubeconfig=/a",
        "--authentication-skip-lookup",
        "--authentication-tolerate-lookup-failure=false",
        "--authentication-token-webhook-cache-ttl=1m",
        "--authorization-kubeconfig=/z",
        "--authorization-always-allow-paths=healthz,/metrics/*",
        "--authorization-webhook-cache-authorized-ttl=5s",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    ) == ServingOptions(
        bind_address="10.0.0.7",
        secure_port=11259,
        cert_dir="/certs",
        tls_cert_file="/c",
        tls_private_key_file="/k",
        tls_sni_cert_keys=(
            NamedPair("/c1", "/k1"),
            NamedPair("/c2", "/k2", ("*.example.com", "::1")),
        ),
        tls_min_version="VersionTLS13",
        tls_cipher_suites=("TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
        client_ca_file="/ca",
        requestheader_client_ca_file="/proxies",
        front_proxy=FrontProxy(
            allowed_names=("aggregator", "front", "back"),
            username_headers=("X-User", " X-Remote-User"),
            uid_headers=("X-Remote-Uid",),
            group_headers=(),
            extra_prefixes=("X-E-",),
        ),
        authentication_kubeconfig="/a",
        authentication_skip_lookup=True,
        authentication_tolerate_lookup_failure=False,
        authentication_cache_seconds=60,
        authorization_kubeconfig="/z",
        authorization_always_allow_paths=("/healthz", "/metrics/*"),
        authorized_cache_seconds=5,
        unauthorized_cache_seconds=0,
    )


def test_an_insecure_port_is_on_loopback() -> None:
    assert serving("--insecure-loopback").bind_address == "127.0.0.1"
    assert serving("--insecure-loopback", "--bind-address=::1").bind_address == "::1"
    assert serving("--insecure-loopback=false").bind_address == "0.0.0.0"


def test_a_proxy_is_described_by_its_flags_or_by_the_cluster_but_not_by_both() -> None:
    parser = argparse.ArgumentParser(prog="ksched run")
    add_run_flags(parser)
    arguments = ["--requestheader-allowed-names=a", "--requestheader-group-headers=g"]
    assert run_options(parser.parse_args(arguments)).notes == (
        "--requestheader-allowed-names has no effect without --requestheader-client-ca-file",
        "--requestheader-group-headers has no effect without --requestheader-client-ca-file",
    )
    arguments.append("--requestheader-client-ca-file=/ca")
    assert run_options(parser.parse_args(arguments)).notes == ()


def test_everything_that_contradicts_an_insecure_port_is_listed() -> None:
    with pytest.raises(ConfigError) as caught:
        serving("--insecure-loopback", "--bind-address=0.0.0.0", "--client-ca-file=x")
    assert caught.value.problems == (
        "--insecure-loopback: --bind-address is 0.0.0.0, wanted a loopback address, as 127.0.0.1",
        "--insecure-loopback: plain HTTP without authentication, --client-ca-file has no meaning",
    )


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("--tls-min-version=1.2", "unknown tls version '1.2', wanted one of VersionTLS10"),
        ("--tls-cipher-suites=A,B", "Cipher suite A, B not supported or doesn't exist"),
        ("--authorization-always-allow-paths=/a*b", "'/a*b': only a trailing * is allowed"),
        ("--tls-sni-cert-key=/c", "expected comma separated certificate and key file paths"),
        ("--tls-sni-cert-key=/c,/k,/x", "expected comma separated certificate and key file"),
        ("--tls-sni-cert-key=/c,/k: ", "empty names list is not allowed"),
        ("--requestheader-allowed-names=a,,b", "empty value in 'a,,b'"),
        ("--requestheader-username-headers= ", "empty value in ' '"),
        ("--authorization-webhook-cache-authorized-ttl=-1s", "must not be negative, got '-1s'"),
    ],
)
def test_nonsense_is_refused(
    argument: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        serving(argument)
    assert complaint in capsys.readouterr().err
