"""Finding the server and the credentials."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import pytest
import trustme
import yaml

from ksched.client.exec_credentials import ExecCredentials
from ksched.client.kubeconfig import load_client_config
from ksched.client.proxy import proxy_from_environment
from ksched.errors import ConfigError

CA = trustme.CA()
CA_PEM = CA.cert_pem.bytes().decode()


def b64(text):
    return base64.b64encode(text.encode()).decode()


def kubeconfig(cluster=None, user=None, context=None, **top):
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://h:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": context or {"cluster": "c", "user": "u"}}],
        "current-context": "x",
        **top,
    }


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="config"):
        path = tmp_path / name
        if isinstance(content, dict):
            content = yaml.safe_dump(content)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


@pytest.fixture
def load(clock, tmp_path):
    """Load with an empty environment unless the test gives one."""

    def run(path="", **options):
        options.setdefault("environ", {"HOME": str(tmp_path / "home")})
        options.setdefault("service_account", tmp_path / "serviceaccount")
        return load_client_config(clock, kubeconfig=str(path), **options)

    return run


async def authorization(config):
    return (await config.credentials.get()).authorization


# -- what a file says ---------------------------------------------------------------------------


async def test_server_and_everything_about_tls(write, load, tmp_path):
    leaf = CA.issue_cert("client@example.org")
    cert = b"".join(blob.bytes() for blob in leaf.cert_chain_pems).decode()
    key = leaf.private_key_pem.bytes().decode()
    write(CA_PEM, "ca.crt")
    write(cert, "client.crt")
    write(key, "client.key")
    files = load(
        write(
            kubeconfig(
                {"certificate-authority": "ca.crt", "tls-server-name": "kube"},
                {"client-certificate": "client.crt", "client-key": str(tmp_path / "client.key")},
            )
        )
    )
    assert files.server == "https://h:6443"
    assert files.tls.ca_file == tmp_path / "ca.crt"
    assert files.tls.certificate_file == tmp_path / "client.crt"
    assert files.tls.key_file == tmp_path / "client.key"
    assert files.tls.server_name == "kube"
    assert await authorization(files) == ""
    inline = load(
        write(
            kubeconfig(
                {"certificate-authority-data": b64(CA_PEM)},
                {"client-certificate-data": b64(cert), "client-key-data": b64(key)},
            )
        )
    )
    assert (inline.tls.ca_data, inline.tls.certificate_data) == (CA_PEM, cert)
    assert inline.tls.key_data == key


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param({}, "", id="nobody"),
        pytest.param({"token": "abc"}, "Bearer abc", id="token"),
        pytest.param({"token": "abc\n"}, "Bearer abc", id="token with a newline"),
        pytest.param({"tokenFile": "token"}, "Bearer from-file", id="token file beside it"),
        pytest.param({"tokenFile": "token", "token": "abc"}, "Bearer from-file", id="file wins"),
        pytest.param(
            {"username": "a", "password": "b"}, f"Basic {b64('a:b')}", id="name and password"
        ),
    ],
)
async def test_who_we_are(write, load, user, expected):
    write("  from-file\n\n", "token")
    assert await authorization(load(write(kubeconfig(user=user)))) == expected


async def test_context_without_a_user_is_nobody(write, load):
    config = load(write(kubeconfig(context={"cluster": "c"})))
    assert config.server == "https://h:6443"
    assert await authorization(config) == ""


def test_chosen_context_wins_over_the_current_one(write, load):
    content = kubeconfig()
    content["clusters"].append({"name": "d", "cluster": {"server": "http://other"}})
    content["contexts"].append({"name": "y", "context": {"cluster": "d"}})
    assert load(write(content), context="y").server == "http://other"


def test_impersonation_becomes_headers(write, load):
    user = {
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"example.org/scopes": ["v", "w"]},
    }
    assert load(write(kubeconfig(user=user))).headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-example.org%2Fscopes", "v"),
        ("Impersonate-Extra-example.org%2Fscopes", "w"),
    )


def test_exec_section_is_read(write, load, tmp_path):
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./bin/login",
            "args": ["--quiet", 5],
            "env": [{"name": "A", "value": "b"}],
            "installHint": "ask Bob",
            "interactiveMode": "IfAvailable",
            "provideClusterInfo": True,
        }
    }
    cluster = {
        "certificate-authority-data": b64(CA_PEM),
        "extensions": [
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
        ],
    }
    config = load(write(kubeconfig(cluster, user)))
    assert isinstance(config.credentials, ExecCredentials)
    spec = config.credentials._spec
    assert spec.command == str(tmp_path / "bin" / "login")
    assert spec.args == ("--quiet", "5")
    assert spec.env == {"A": "b"}
    assert spec.install_hint == "ask Bob"
    assert spec.cluster == {
        "server": "https://h:6443",
        "certificate-authority-data": b64(CA_PEM),
        "config": {"audience": "x"},
    }


def test_file_is_never_written(write, load):
    path = write(kubeconfig(user={"token": "abc"}))
    before = path.read_bytes()
    path.chmod(0o400)
    load(path)
    assert path.read_bytes() == before


# -- where the file is --------------------------------------------------------------------------


def test_files_of_the_environment_are_merged_and_the_first_wins(write, load, tmp_path):
    first = write(
        {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        },
        "first",
    )
    (tmp_path / "sub").mkdir()
    write("sesame", "sub/token")
    second = write(
        kubeconfig({"server": "http://second"}, {"tokenFile": "token"})
        | {"current-context": "never"},
        "sub/second",
    )
    config = load(environ={"KUBECONFIG": f"{first}:{tmp_path}/missing:{second}"})
    assert config.server == "http://second"
    assert config.credentials._path == tmp_path / "sub" / "token"


def test_flag_wins_over_environment_over_home_over_service_account(write, load, tmp_path):
    (tmp_path / ".kube").mkdir()
    write(kubeconfig({"server": "http://home"}), ".kube/config")
    flag = write(kubeconfig({"server": "http://flag"}), "flag")
    listed = write(kubeconfig({"server": "http://listed"}), "listed")
    environ = {"HOME": str(tmp_path), "KUBECONFIG": str(listed), "KUBERNETES_SERVICE_HOST": "h"}
    assert load(flag, environ=environ).server == "http://flag"
    assert load(environ=environ).server == "http://listed"
    del environ["KUBECONFIG"]
    assert load(environ=environ).server == "http://home"


@pytest.mark.parametrize("host", ["10.0.0.1", "fd00::1"])
async def test_inside_a_pod_the_service_account_is_used(write, load, tmp_path, host):
    (tmp_path / "serviceaccount").mkdir()
    write("sesame\n", "serviceaccount/token")
    write(CA_PEM, "serviceaccount/ca.crt")
    environ = {
        "HOME": "/nowhere",
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": "443",
    }
    config = load(environ=environ)
    assert config.server == ("https://[fd00::1]:443" if ":" in host else "https://10.0.0.1:443")
    assert config.tls.ca_file == tmp_path / "serviceaccount" / "ca.crt"
    assert await authorization(config) == "Bearer sesame"


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_incomplete_service_account_is_named(write, load, tmp_path, missing):
    (tmp_path / "serviceaccount").mkdir()
    for name, content in (("token", "x"), ("ca.crt", CA_PEM)):
        if name != missing:
            write(content, f"serviceaccount/{name}")
    environ = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1", "HOME": "/nowhere"}
    with pytest.raises(ConfigError, match=r"in-cluster configuration: .*serviceaccount"):
        load(environ=environ)


async def test_master_replaces_the_address_only(write, load):
    path = write(kubeconfig(user={"token": "abc"}))
    config = load(path, master="https://other:1")
    assert config.server == "https://other:1"
    assert await authorization(config) == "Bearer abc"
    assert load(master="localhost:8080").server == "http://localhost:8080"


def test_nothing_to_go_by_is_an_error_that_says_what_to_do(load):
    with pytest.raises(ConfigError, match=r"wanted --kubeconfig .*, KUBECONFIG"):
        load()


# -- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("a: [", r"config: not YAML at line \d", id="broken YAML"),
        pytest.param("", "config: not a kubeconfig", id="empty"),
        pytest.param("- a\n- b\n", "config: not a kubeconfig", id="a list"),
        pytest.param(b"a: \xff\xfe", "config: not YAML", id="bytes"),
        pytest.param("just text", "config: not a kubeconfig", id="text"),
        pytest.param(
            kubeconfig(**{"current-context": ""}), "current-context: not set", id="no context"
        ),
        pytest.param(
            kubeconfig(**{"current-context": "y"}),
            "current-context: no context named 'y'",
            id="unknown context",
        ),
        pytest.param(
            kubeconfig(context={"cluster": "d"}),
            r"contexts\[x\].context.cluster: no cluster named 'd'",
            id="unknown cluster",
        ),
        pytest.param(
            kubeconfig(context={"cluster": "c", "user": "v"}),
            r"contexts\[x\].context.user: no user named 'v'",
            id="unknown user",
        ),
        pytest.param(
            kubeconfig(context={"user": "u"}),
            r"contexts\[x\].context.cluster: not set",
            id="context without a cluster",
        ),
        pytest.param(
            kubeconfig({"server": ""}), r"clusters\[c\].cluster.server: not set", id="no server"
        ),
        pytest.param(
            kubeconfig({"server": "ftp://h"}),
            r"clusters\[c\].cluster.server: got 'ftp://h'",
            id="odd server",
        ),
        pytest.param(
            kubeconfig({"server": "https://h:port"}),
            r"clusters\[c\].cluster.server: got",
            id="odd port",
        ),
        pytest.param(
            kubeconfig({"certificate-authority": "ca.crt"}),
            r"clusters\[c\].cluster.certificate-authority: no such file",
            id="missing authority",
        ),
        pytest.param(
            kubeconfig({"certificate-authority-data": "%%%"}),
            r"clusters\[c\].cluster.certificate-authority-data: not the base64",
            id="authority that is no base64",
        ),
        pytest.param(
            kubeconfig({"certificate-authority-data": b64("not PEM")}),
            "certificates of https://h:6443",
            id="authority that is none",
        ),
        pytest.param(
            kubeconfig(user={"client-certificate-data": "a"}),
            r"users\[u\].user.client-certificate-data: not the base64",
            id="not base64",
        ),
        pytest.param(
            kubeconfig({"insecure-skip-tls-verify": "yes please"}),
            "insecure-skip-tls-verify: wanted true or false",
            id="not a flag",
        ),
        pytest.param(
            kubeconfig(user={"token": 12345}),
            r"users\[u\].user.token: wanted a string, got int",
            id="token that YAML reads as a number",
        ),
        pytest.param(
            kubeconfig(user={"auth-provider": {"name": "gcp"}}),
            "auth-provider: was removed",
            id="auth-provider",
        ),
        pytest.param(
            kubeconfig(user={"exec": {"command": "x"}}),
            "exec.apiVersion: got ''",
            id="exec version",
        ),
        pytest.param(
            kubeconfig(
                user={
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "command": "x",
                        "interactiveMode": "Always",
                    }
                }
            ),
            "interactiveMode: got Always",
            id="interactive exec",
        ),
        pytest.param(
            kubeconfig(user={"as-groups": ["a"]}), r"users\[u\].user.as: not set", id="groups only"
        ),
        pytest.param(
            kubeconfig({"proxy-url": "socks5://h"}), "proxy-url: got 'socks5://h'", id="socks"
        ),
        pytest.param(
            kubeconfig({"proxy-url": "http://h:8o"}), "proxy-url: got 'http://h:8o'", id="no port"
        ),
        pytest.param(
            kubeconfig(users="me"), "users: wanted a list of mappings", id="users is no list"
        ),
        pytest.param(
            kubeconfig(clusters=[{"name": "c", "cluster": "h"}]),
            r"clusters\[c\].cluster: wanted a mapping",
            id="cluster is no mapping",
        ),
    ],
)
def test_mistakes_name_file_and_field(write, load, content, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load(write(content))
    assert "config" in str(caught.value)


def test_mistake_beside_a_secret_does_not_quote_it(write, load):
    with pytest.raises(ConfigError) as caught:
        load(write(kubeconfig(users=[{"user": {"token": "sesame"}}])))
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        pytest.param({"server": "https://me:hunter2@x"}, {}, id="server"),
        pytest.param({"proxy-url": "socks5://me:hunter2@x"}, {}, id="proxy"),
        pytest.param({"insecure-skip-tls-verify": "hunter2"}, {}, id="flag"),
        pytest.param({}, "hunter2", id="a token where a mapping belongs"),
        pytest.param({}, {"exec": "hunter2"}, id="a token where a program belongs"),
    ],
)
def test_misplaced_secret_is_not_quoted(write, load, cluster, user):
    with pytest.raises(ConfigError) as caught:
        load(write(kubeconfig(cluster=cluster, user=user)))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "proxy", ["socks5://me:hunter2@h:1", "http://me:hunter2@h:8o", "me:hun/ter2@h:1", "http://[::1"]
)
def test_proxy_of_the_environment_that_cannot_be_used_is_a_mistake(write, load, proxy):
    with pytest.raises(ConfigError, match="HTTPS_PROXY: got") as caught:
        load(write(kubeconfig()), environ={"HTTPS_PROXY": proxy})
    assert "hun" not in str(caught.value)


def test_missing_file_is_named(load, tmp_path):
    with pytest.raises(ConfigError, match=f"no such file: {tmp_path}/nope"):
        load(tmp_path / "nope")
    with pytest.raises(ConfigError, match="KUBECONFIG: no such file: /a"):
        load(environ={"KUBECONFIG": "/a:/b"})


def test_unknown_asked_for_context_is_named(write, load):
    with pytest.raises(ConfigError, match="no context named 'z'"):
        load(write(kubeconfig()), context="z")


def test_importing_the_client_does_not_import_the_library():
    code = (
        "import sys; import ksched.client.kubeconfig; sys.exit('kubernetes_asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- proxies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        pytest.param("https://h:6443", {}, "", id="none"),
        pytest.param("https://h:6443", {"HTTPS_PROXY": "http://p:1"}, "http://p:1", id="https"),
        pytest.param("https://h:6443", {"https_proxy": "p:1"}, "http://p:1", id="no scheme"),
        pytest.param("http://h", {"HTTPS_PROXY": "http://p:1"}, "", id="other scheme"),
        pytest.param("https://127.0.0.1:1", {"HTTPS_PROXY": "http://p"}, "", id="loopback"),
        pytest.param("https://localhost", {"HTTPS_PROXY": "http://p"}, "", id="localhost"),
        *(
            pytest.param(
                server,
                {"HTTPS_PROXY": "http://p", "NO_PROXY": exceptions},
                "" if matches else "http://p",
                id=f"NO_PROXY {exceptions} and {server}",
            )
            for server, exceptions, matches in [
                ("https://10.1.2.3:6443", "10.0.0.0/8", True),
                ("https://11.1.2.3:6443", "10.0.0.0/8,11.1.2.3", True),
                ("https://11.1.2.3:6443", "11.1.2.3:443", False),
                ("https://11.1.2.3:6443", "11.1.2.3:6443", True),
                ("https://kube.corp.example:6443", "other, corp.example", True),
                ("https://kube.corp.example:6443", ".corp.example", True),
                ("https://corp.example", ".corp.example", False),
                ("https://mycorp.example", "corp.example", False),
                ("https://kube.example", "*", True),
                ("https://[fd00::1]:6443", "fd00::/8", True),
                ("https://kube.example", "", False),
            ]
        ),
    ],
)
def test_proxy_of_the_environment(server, environ, expected):
    assert proxy_from_environment(server, environ) == expected


def test_proxy_of_the_file_wins_over_the_environment(write, load):
    path = write(kubeconfig({"proxy-url": "http://mine:1"}))
    environ = {"HTTPS_PROXY": "http://theirs:1"}
    assert load(path, environ=environ).proxy == "http://mine:1"
    assert load(write(kubeconfig()), environ=environ).proxy == "http://theirs:1"


def test_json_is_yaml_too(write, load):
    assert load(write(json.dumps(kubeconfig()))).server == "https://h:6443"
