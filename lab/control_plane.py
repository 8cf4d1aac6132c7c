"""A real control plane on loopback: etcd, kube-apiserver and, on demand, kube-scheduler.

TLS, RBAC and token users as in a cluster; no controllers and no kubelet, so nothing changes but by
the test's own hand.
"""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ksched.errors import KschedError
from lab.assets import KUBE_CONTROLLER_MANAGER, Assets, AssetsMissing, locate
from lab.child_process import ChildFailed, ChildProcess

HOST = "127.0.0.1"
POLL_SECONDS = 0.1
READY_POLLS = 600


class User(NamedTuple):
    """Somebody the API server knows by a token."""

    name: str
    token: str
    groups: tuple[str, ...] = ()


ADMIN = User("admin", "admin-token", ("system:masters",))
KUBE_SCHEDULER = User("system:kube-scheduler", "kube-scheduler-token")
KSCHED = User(
    "system:serviceaccount:kube-system:ksched",
    "ksched-token",
    ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"),
)
READER = User(
    "system:serviceaccount:kube-system:ksched-read-only",
    "reader-token",
    ("system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"),
)
USERS = {
    "admin": ADMIN,
    "kube-scheduler": KUBE_SCHEDULER,
    "ksched": KSCHED,
    "reader": READER,
}


class Answer(NamedTuple):
    """What the API server answered, the body decoded when it is JSON."""

    status: int
    body: Any


class ControlPlane:
    """etcd and kube-apiserver, made by ``running`` and gone when its block ends.

    ``folder`` holds a kubeconfig per user (``USERS``) and the logs. The users ``ksched`` and
    ``reader`` may do nothing until the test applies a role for them.
    """

    def __init__(self, folder: Path, assets: Assets, apiserver_flags: Sequence[str]) -> None:
        self.folder, self.assets = folder, assets
        self._apiserver_flags = tuple(apiserver_flags)
        self._port, self._etcd_port, self._peer_port = free_ports(3)
        self._etcd: ChildProcess | None = None
        self._apiserver: ChildProcess | None = None

    @classmethod
    @contextmanager
    def running(
        cls, folder: Path, assets: Assets, apiserver_flags: Sequence[str] = ()
    ) -> Iterator[ControlPlane]:
        """Start everything, wait until it is ready, and end it whatever happens in the block."""
        plane = cls(folder, assets, apiserver_flags)
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            for stored in (plane._data_folder, plane._saved_folder):
                stack.callback(shutil.rmtree, stored, ignore_errors=True)
            stack.callback(plane._kill_etcd)
            plane._start_etcd()
            stack.callback(plane.kill_apiserver)
            plane._write_tokens()
            plane.start_apiserver()
            yield plane

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self._port}"

    @property
    def server_pids(self) -> tuple[int, ...]:
        """kube-apiserver and etcd, as they run now."""
        return tuple(one.pid for one in (self._apiserver, self._etcd) if one is not None)

    @property
    def ca_file(self) -> Path:
        """The certificate to trust: the server makes its own and keeps it over a restart."""
        return self.folder / "certs" / "apiserver.crt"

    def kubeconfig(self, user: str = "admin") -> Path:
        """The kubeconfig file of a user named in ``USERS``."""
        return self.folder / f"{user}.kubeconfig"

    def ssl_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def start_apiserver(self) -> None:
        """Start kube-apiserver on the same port and data, and wait until it is ready."""
        self._apiserver = ChildProcess(
            "kube-apiserver", self._apiserver_command(), self.folder / "kube-apiserver.log"
        )
        for _ in range(READY_POLLS):
            self._apiserver.must_run(POLL_SECONDS)
            if self._is_ready():
                break
        else:
            raise self._apiserver.failure(f"not ready after {READY_POLLS * POLL_SECONDS:.0f} s")
        for user in USERS:
            self._write_kubeconfig(user)

    def stop_apiserver(self) -> None:
        """End kube-apiserver in good order: watches are closed, requests finished."""
        if self._apiserver is not None:
            self._apiserver.stop()

    def kill_apiserver(self) -> None:
        """End kube-apiserver as a crash would."""
        if self._apiserver is not None:
            self._apiserver.kill()

    def save_etcd(self) -> None:
        """Keep a copy of everything stored; the server is without its etcd for a moment."""
        assert self._etcd is not None
        self._etcd.stop()
        shutil.rmtree(self._saved_folder, ignore_errors=True)
        shutil.copytree(self._data_folder, self._saved_folder)
        self._start_etcd()

    def restore_etcd(self) -> None:
        """End both, put the copy of ``save_etcd`` in place and start both, as after a disaster."""
        self.kill_apiserver()
        self._kill_etcd()
        shutil.rmtree(self._data_folder)
        shutil.copytree(self._saved_folder, self._data_folder)
        self._start_etcd()
        self.start_apiserver()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str = "admin",
        content_type: str = "application/json",
    ) -> Answer:
        """Send one request on a connection of its own; for set-up and assertions, not for load."""
        connection = http.client.HTTPSConnection(
            HOST, self._port, timeout=30, context=self.ssl_context()
        )
        headers = {
            "Authorization": f"Bearer {USERS[user].token}",
            "Content-Type": content_type,
            "Accept": "application/json",
        }
        payload = None if body is None else json.dumps(body)
        return _exchange(connection, method, path, payload, headers)

    def kubectl(self, *arguments: str, user: str = "admin", stdin: str | None = None) -> str:
        """Run kubectl and return what it prints, or raise ``ChildFailed``."""
        command = [self.assets.kubectl, "--kubeconfig", self.kubeconfig(user)]
        # The cache of discovery would be shared with the person who runs the tests.
        command += ["--cache-dir", self.folder / "kubectl-cache"]
        done = subprocess.run(
            [*map(str, command), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if done.returncode:
            name = f"kubectl {' '.join(arguments)}"
            raise ChildFailed(name, f"exit code {done.returncode}", done.stderr.strip())
        return done.stdout

    def compact_etcd(self) -> int:
        """Forget all history up to now, as the server does every five minutes; return the revision.

        A running server still answers old versions from its watch cache, of all resources but
        events; after a restart it cannot.
        """
        current = self._etcd_call("/v3/kv/range", {"key": "AA=="})
        revision = int(current["header"]["revision"])
        self._etcd_call("/v3/kv/compaction", {"revision": revision, "physical": True})
        return revision

    def kube_scheduler(
        self,
        name: str = "kube-scheduler",
        *,
        scheduler_name: str = "default-scheduler",
        verbosity: int = 0,
        flags: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> ChildProcess:
        """Start the real kube-scheduler; use it as a context manager to end it.

        ``config`` replaces top-level keys of ``scheduler_config``. ``name`` tells the log and
        the configuration file of one scheduler from another's.
        """
        file = self._scheduler_config(name, "kube-scheduler", scheduler_name, config)
        fixed = ("--config", file, "--secure-port=0", f"-v={verbosity}")
        program = self.assets.kube_scheduler
        return ChildProcess(name, (program, *fixed, *flags), self.folder / f"{name}.log")

    def ksched(
        self,
        name: str = "ksched",
        *,
        scheduler_name: str = "default-scheduler",
        flags: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
        program: Path | None = None,
    ) -> ChildProcess:
        """Start ``ksched run`` likewise, as a user who may do nothing until a role is applied.

        ``program`` is another ksched than the one of this environment.
        """
        file = self._scheduler_config(name, "ksched", scheduler_name, config)
        program = program or Path(sys.executable).with_name("ksched")
        fixed = ("--config", file, "--kubeconfig", self.kubeconfig("ksched"), "--secure-port=0")
        return ChildProcess(name, (program, "run", *fixed, *flags), self.folder / f"{name}.log")

    def kube_controller_manager(self, *flags: str) -> ChildProcess:
        """Start the controllers likewise; raises ``AssetsMissing``."""
        program = locate(KUBE_CONTROLLER_MANAGER)
        if program is None:
            raise AssetsMissing((KUBE_CONTROLLER_MANAGER,))
        fixed = ("--kubeconfig", self.kubeconfig(), "--leader-elect=false", "--secure-port=0")
        log_path = self.folder / "controllers.log"
        return ChildProcess(KUBE_CONTROLLER_MANAGER, (program, *fixed, *flags), log_path)

    @property
    def _data_folder(self) -> Path:
        return self.folder / "etcd"

    @property
    def _saved_folder(self) -> Path:
        return self.folder / "etcd-saved"

    def _start_etcd(self) -> None:
        self._etcd = ChildProcess("etcd", self._etcd_command(), self.folder / "etcd.log")

    def _kill_etcd(self) -> None:
        # The data is thrown away, so nothing is gained by ending in good order.
        if self._etcd is not None:
            self._etcd.kill()

    def _etcd_command(self) -> list[str | Path]:
        client, peer = f"http://{HOST}:{self._etcd_port}", f"http://{HOST}:{self._peer_port}"
        return [
            self.assets.etcd,
            *("--data-dir", self._data_folder),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
            *("--unsafe-no-fsync", "--log-level=error"),
        ]

    def _apiserver_command(self) -> list[str | Path]:
        certs = self.folder / "certs"
        # The server makes this key pair at its first start, before it reads the files below.
        key = certs / "apiserver.key"
        return [
            self.assets.kube_apiserver,
            f"--etcd-servers=http://{HOST}:{self._etcd_port}",
            f"--bind-address={HOST}",
            f"--secure-port={self._port}",
            f"--cert-dir={certs}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            # There are no controllers that make service accounts or take the not-ready taint away.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--profiling=false",
            # Tests and measurements are about the scheduler, not about the server's fair shares.
            "--enable-priority-and-fairness=false",
            "--max-requests-inflight=3000",
            "--max-mutating-requests-inflight=2000",
            *self._apiserver_flags,
        ]

    def _write_tokens(self) -> None:
        lines = [
            f'{user.token},{user.name},{number},"{",".join(user.groups)}"\n'
            for number, user in enumerate(USERS.values())
        ]
        (self.folder / "tokens.csv").write_text("".join(lines))

    def _write_kubeconfig(self, user: str) -> None:
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": USERS[user].token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": user}}],
            "current-context": "real",
        }
        self.kubeconfig(user).write_text(json.dumps(config, indent=2))

    def _scheduler_config(
        self, name: str, user: str, scheduler_name: str, config: Mapping[str, Any] | None
    ) -> Path:
        settings = scheduler_config(self.kubeconfig(user), scheduler_name)
        file = self.folder / f"{name}.config.yaml"
        file.write_text(json.dumps({**settings, **(config or {})}, indent=2))
        return file

    def _is_ready(self) -> bool:
        if not self.ca_file.exists():
            return False
        # readyz says nothing about the namespaces, which the server makes a moment later.
        paths = ("/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system")
        try:
            return all(self.request("GET", path).status == 200 for path in paths)
        except (OSError, http.client.HTTPException):
            return False

    def _etcd_call(self, path: str, body: object) -> Any:
        connection = http.client.HTTPConnection(HOST, self._etcd_port, timeout=30)
        answer = _exchange(connection, "POST", path, json.dumps(body), {})
        if answer.status != 200:
            raise KschedError(f"etcd {path}: {answer.status} {answer.body}")
        return answer.body


def scheduler_config(kubeconfig: Path, scheduler_name: str = "default-scheduler") -> dict[str, Any]:
    """A configuration for one scheduler alone, its client limits too high to be met."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": scheduler_name}],
    }


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    payload: str | None,
    headers: Mapping[str, str],
) -> Answer:
    try:
        connection.request(method, path, payload, dict(headers))
        response = connection.getresponse()
        data = response.read()
    finally:
        connection.close()
    is_json = response.headers.get_content_type() == "application/json"
    return Answer(response.status, json.loads(data) if is_json else data.decode())
