"""The API server's address and the credentials, from a kubeconfig or from inside a pod.

Read as client-go reads them. kubernetes-asyncio is not used for it: to import it takes 0.2 s and
34 MB, and it reads credentials once, without renewal and impersonation.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import yaml

from ksched.client.authentication import (
    ANONYMOUS,
    FixedSecret,
    Secret,
    SecretSource,
    TokenFile,
    bearer,
)
from ksched.client.exec_credentials import ExecCredentials, ExecSpec
from ksched.client.http_transport import ClientConfig
from ksched.client.proxy import checked_proxy, proxy_from_environment
from ksched.client.tls import TlsSettings, build_context
from ksched.clock import Clock
from ksched.errors import ConfigError, Unavailable
from ksched.redaction import redact_text

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


def load_client_config(
    clock: Clock,
    *,
    kubeconfig: str = "",
    context: str = "",
    master: str = "",
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClientConfig:
    """Find the server and the credentials, or raise ``ConfigError`` naming file and field.

    In this order: ``kubeconfig``, the files in KUBECONFIG, ``~/.kube/config``, the service account
    of the pod this runs in. ``master`` replaces the server's address; alone it means an API server
    without authentication.
    """
    paths = _paths(kubeconfig, environ)
    if paths:
        config = _from_files(paths, context, clock)
    elif "KUBERNETES_SERVICE_HOST" in environ:
        config = _in_cluster(environ, service_account, clock)
    elif master:
        config = ClientConfig(_server_url(master, "--master"))
    else:
        flag = "--kubeconfig (clientConnection.kubeconfig in the file of --config)"
        wanted = f"wanted {flag}, KUBECONFIG, ~/.kube/config or a service account"
        raise ConfigError([f"kubeconfig: no cluster to talk to; {wanted}"])
    if master:
        config = replace(config, server=_server_url(master, "--master"))
    if not config.proxy:
        config = replace(config, proxy=_proxy_from(environ, config.server))
    _check_tls(config)
    return config


def _paths(kubeconfig: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the files to merge; those of KUBECONFIG may be missing, but not all of them."""
    if kubeconfig:
        return [Path(kubeconfig).expanduser()]
    listed = [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        found = [path for part in listed if (path := Path(part).expanduser()).exists()]
        if not found:
            raise ConfigError([f"KUBECONFIG: no such file: {path}" for path in listed])
        return found
    home = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    return [home] if home.exists() else []


# -- in a pod -----------------------------------------------------------------------------------


def _in_cluster(environ: Mapping[str, str], folder: Path, clock: Clock) -> ClientConfig:
    host, port = (environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port:
        wanted = "wanted KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT"
        raise ConfigError([f"in-cluster configuration: got {host!r} and {port!r}, {wanted}"])
    for path in (folder / "token", folder / "ca.crt"):
        try:
            problem = "" if path.read_bytes() else "the file is empty"
        except OSError as error:
            problem = str(error.strerror)
        if problem:
            raise ConfigError([f"in-cluster configuration: {path}: {problem}"])
    return ClientConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=TlsSettings(ca_file=folder / "ca.crt"),
        credentials=TokenFile(folder / "token", clock),
    )


# -- kubeconfig files ---------------------------------------------------------------------------


class _File(NamedTuple):
    """A kubeconfig whose lists have the right shape."""

    path: Path
    content: dict[str, Any]


class _Section:
    """One mapping of a kubeconfig, with its file and name for messages."""

    def __init__(self, value: Any, where: str, file: Path) -> None:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            # The value itself may be a secret.
            got = type(value).__name__
            raise ConfigError([f"{file}: {where}: wanted a mapping, got {got}"])
        self.value: dict[str, Any] = value
        self.where, self.file = where, file

    def error(self, field: str, problem: str) -> ConfigError:
        return ConfigError([f"{self.file}: {self.where}.{field}: {problem}"])

    def text(self, field: str) -> str:
        value = self.value.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            # The value itself may be a secret.
            raise self.error(field, f"wanted a string, got {type(value).__name__}")
        return value

    def flag(self, field: str) -> bool:
        value = self.value.get(field, False)
        if not isinstance(value, bool):
            raise self.error(field, f"wanted true or false, got {type(value).__name__}")
        return value

    def items(self, field: str) -> list[Any]:
        value = self.value.get(field) or []
        if not isinstance(value, list):
            raise self.error(field, f"wanted a list, got {type(value).__name__}")
        return value

    def section(self, field: str) -> _Section:
        return _Section(self.value.get(field), f"{self.where}.{field}", self.file)

    def path(self, field: str) -> Path | None:
        """Return a file path; relative to the kubeconfig that names it, and it must exist."""
        name = self.text(field)
        if not name:
            return None
        path = self.file.parent / name
        if not path.is_file():
            raise self.error(field, f"no such file: {path}")
        return path

    def data(self, field: str) -> str:
        """Decode inline base64 of a PEM file."""
        try:
            packed = "".join(self.text(field).split())
            return base64.b64decode(packed, validate=True).decode("ascii")
        except (binascii.Error, UnicodeDecodeError):
            raise self.error(field, "not the base64 of a PEM file") from None


def _from_files(paths: list[Path], context: str, clock: Clock) -> ClientConfig:
    files = [_read(path) for path in paths]
    context = context or _current_context(files)
    if not context:
        raise ConfigError([f"{paths[0]}: current-context: not set, and no context was given"])
    chosen = _named(files, "contexts", context, "current-context")
    cluster_name = chosen.text("cluster")
    if not cluster_name:
        raise chosen.error("cluster", "not set")
    cluster = _named(files, "clusters", cluster_name, f"{chosen.where}.cluster")
    user_name = chosen.text("user")
    if user_name:
        user = _named(files, "users", user_name, f"{chosen.where}.user")
    else:
        user = _Section({}, "users", paths[0])
    if not cluster.text("server"):
        raise cluster.error("server", "not set")
    return ClientConfig(
        server=_server_url(cluster.text("server"), f"{cluster.file}: {cluster.where}.server"),
        tls=_tls(cluster, user),
        credentials=_credentials(cluster, user, clock),
        headers=_impersonation(user),
        proxy=_proxy(cluster),
    )


def _read(path: Path) -> _File:
    """Read one file; messages must not quote it, since it may hold secrets."""
    try:
        content = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    except FileNotFoundError as error:
        raise ConfigError([f"kubeconfig: no such file: {path}"]) from error
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise ConfigError([f"{path}: not YAML{where}"]) from error
    if not isinstance(content, dict):
        raise ConfigError([f"{path}: not a kubeconfig: wanted a mapping at the top"])
    for kind in ("clusters", "contexts", "users"):
        entries = content.get(kind) or []
        if not isinstance(entries, list) or not all(
            isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in entries
        ):
            raise ConfigError([f"{path}: {kind}: wanted a list of mappings that have a name"])
    return _File(path.absolute(), content)


def _current_context(files: Sequence[_File]) -> str:
    """Of the first file that names one."""
    for file in files:
        if file.content.get("current-context"):
            return str(file.content["current-context"])
    return ""


def _named(files: Sequence[_File], kind: str, name: str, asked_by: str) -> _Section:
    """Return the entry of one of the three lists, of the first file that has it."""
    singular = kind.removesuffix("s")
    for file in files:
        for entry in file.content.get(kind) or []:
            if entry["name"] == name:
                return _Section(entry.get(singular), f"{kind}[{name}].{singular}", file.path)
    raise ConfigError([f"{files[0].path}: {asked_by}: no {singular} named {name!r}"])


def _tls(cluster: _Section, user: _Section) -> TlsSettings:
    return TlsSettings(
        ca_file=None
        if cluster.text("certificate-authority-data")
        else cluster.path("certificate-authority"),
        ca_data=cluster.data("certificate-authority-data"),
        certificate_file=None
        if user.text("client-certificate-data")
        else user.path("client-certificate"),
        key_file=None if user.text("client-key-data") else user.path("client-key"),
        certificate_data=user.data("client-certificate-data"),
        key_data=user.data("client-key-data"),
        server_name=cluster.text("tls-server-name"),
        insecure=cluster.flag("insecure-skip-tls-verify"),
    )


def _credentials(cluster: _Section, user: _Section, clock: Clock) -> SecretSource:
    """Select as client-go does: exec program, then token file, token, password."""
    if "exec" in user.value:
        return ExecCredentials(_exec_spec(cluster, user.section("exec")), clock)
    if "auth-provider" in user.value:
        raise user.error("auth-provider", "was removed from Kubernetes in 1.26; use exec")
    token_file = user.text("tokenFile")
    if token_file:
        return TokenFile(user.file.parent / token_file, clock)
    token = user.text("token").strip()
    if token:
        try:
            return FixedSecret(bearer(token))
        except Unavailable as error:
            raise user.error("token", error.message) from None
    if user.text("username"):
        pair = f"{user.text('username')}:{user.text('password')}".encode()
        return FixedSecret(Secret(authorization=f"Basic {base64.b64encode(pair).decode()}"))
    return FixedSecret()


def _exec_spec(cluster: _Section, section: _Section) -> ExecSpec:
    version = section.text("apiVersion")
    if version not in _EXEC_VERSIONS:
        raise section.error("apiVersion", f"got {version!r}, wanted one of {_EXEC_VERSIONS}")
    command = section.text("command")
    if not command:
        raise section.error("command", "not set")
    if section.text("interactiveMode") == "Always":
        raise section.error("interactiveMode", "got Always, but a scheduler has no terminal")
    if os.sep in command:
        command = str(section.file.parent / command)
    env = [_Section(item, f"{section.where}.env", section.file) for item in section.items("env")]
    return ExecSpec(
        api_version=version,
        command=command,
        args=tuple(str(arg) for arg in section.items("args")),
        env={item.text("name"): item.text("value") for item in env},
        cluster=_cluster_info(cluster) if section.flag("provideClusterInfo") else None,
        install_hint=section.text("installHint"),
    )


def _cluster_info(cluster: _Section) -> dict[str, object]:
    info: dict[str, object] = {"server": cluster.text("server")}
    for field in ("tls-server-name", "proxy-url"):
        if cluster.text(field):
            info[field] = cluster.text(field)
    if cluster.flag("insecure-skip-tls-verify"):
        info["insecure-skip-tls-verify"] = True
    authority = cluster.text("certificate-authority-data")
    file = cluster.path("certificate-authority")
    if not authority and file is not None:
        authority = base64.b64encode(file.read_bytes()).decode()
    if authority:
        info["certificate-authority-data"] = authority
    for item in cluster.items("extensions"):
        if isinstance(item, dict) and item.get("name") == _EXEC_EXTENSION:
            info["config"] = item.get("extension")
    return info


def _impersonation(user: _Section) -> tuple[tuple[str, str], ...]:
    headers = [("Impersonate-User", user.text("as")), ("Impersonate-Uid", user.text("as-uid"))]
    headers += [("Impersonate-Group", str(group)) for group in user.items("as-groups")]
    extra = user.section("as-user-extra")
    for key in extra.value:
        name = f"Impersonate-Extra-{quote(str(key), safe='')}"
        headers += [(name, str(value)) for value in extra.items(key)]
    headers = [(name, value) for name, value in headers if value]
    for name, value in headers:
        if not (value.isascii() and value.isprintable()):
            raise user.error("as", f"{name}: contains characters that no header may hold")
    if headers and not user.text("as"):
        raise user.error("as", "not set, but groups, uid or extra fields to impersonate are")
    return tuple(headers)


def _proxy(cluster: _Section) -> str:
    proxy = cluster.text("proxy-url")
    try:
        return checked_proxy(proxy) if proxy else ""
    except ValueError as problem:
        raise cluster.error("proxy-url", str(problem)) from None


def _proxy_from(environ: Mapping[str, str], server: str) -> str:
    try:
        return proxy_from_environment(server, environ)
    except ValueError as problem:
        raise ConfigError([str(problem)]) from None


def _server_url(server: str, where: str) -> str:
    """Return the address with a scheme; a bare host means http, as for client-go."""
    if "://" not in server:
        server = f"http://{server}"
    try:
        url = urlsplit(server)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid or url.query or url.fragment or url.username:
        got = redact_text(server)
        raise ConfigError([f"{where}: got {got!r}, wanted a URL like https://host:6443"])
    return server.rstrip("/")


def _check_tls(config: ClientConfig) -> None:
    """Fail at start, not at the first request, if the certificates cannot be used."""
    if not config.server.startswith("https:"):
        return
    try:
        build_context(config.tls, ANONYMOUS)
    except (OSError, ValueError) as error:
        raise ConfigError([f"kubeconfig: certificates of {config.server}: {error}"]) from error
