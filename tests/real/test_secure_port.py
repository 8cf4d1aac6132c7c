"""Who may read the port, decided by a real API server with RBAC."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from lab.assets import Assets
from lab.child_process import ChildProcess
from lab.control_plane import HOST, ControlPlane, free_ports

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CONFIG = Path(__file__).resolve().parents[2] / "config"
PATIENCE_SECONDS = 60.0
PAGES = ("/metrics", "/metrics/slis", "/metrics/resources", "/flagz", "/statusz")
ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics-reader}
rules:
- nonResourceURLs: [/metrics, /metrics/*, /flagz, /statusz]
  verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: default}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}
"""


class Clients:
    """Users with certificates of the cluster's client CA."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.file = folder / "client-ca.pem"
        self.file.write_bytes(self.authority.cert_pem.bytes())

    def context(self, user: str, group: str = "people") -> ssl.SSLContext:
        context = anyone()
        leaf = self.authority.issue_cert("x@y", common_name=user, organization_name=group)
        leaf.configure_cert(context)
        return context


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Clients:
    return Clients(tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def plane(
    assets: Assets, clients: Clients, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    flags = (f"--client-ca-file={clients.file}",)
    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane.running(folder, assets, flags) as running:
        yield running


def anyone() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def get(
    port: int, path: str, token: str = "", context: ssl.SSLContext | None = None
) -> tuple[int, str]:
    wire = http.client.HTTPSConnection(HOST, port, timeout=20, context=context or anyone())
    try:
        wire.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = wire.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        wire.close()


def until(ksched: ChildProcess, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, ksched.log()[-3000:]
        ksched.must_run(0.2)


def token_of(plane: ControlPlane, name: str) -> str:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert plane.request("POST", accounts, {"metadata": {"name": name}}).status in (201, 409)
    answer = plane.request("POST", f"{accounts}/{name}/token", {"spec": {}})
    assert answer.status == 201
    return str(answer.body["status"]["token"])


def message(text: str) -> Any:
    return json.loads(text)["message"]


def test_rbac_of_the_cluster_decides_who_reads(
    plane: ControlPlane, clients: Clients, tmp_path: Path
) -> None:
    plane.kubectl("apply", "-f", str(CONFIG / "rbac.yaml"))
    plane.kubectl("apply", "-f", "-", stdin=ROLE)
    reader, other = token_of(plane, "reader"), token_of(plane, "other")
    (port,) = free_ports(1)
    flags = (f"--secure-port={port}", f"--bind-address={HOST}")
    with plane.ksched(flags=flags) as ksched:
        until(ksched, lambda: get(port, "/readyz")[0] == 200)
        for probe in ("/healthz", "/livez"):
            assert get(port, probe) == (200, "ok")
        for path in (*PAGES, "/configz", "/debug/queue", "/debug/decisions", "/nowhere"):
            status, text = get(port, path)
            assert (status, message(text)) == (401, "Unauthorized")
            assert get(port, path, "nonsense")[0] == 401
        for path in PAGES:
            assert [get(port, path, token)[0] for token in (other, reader)] == [403, 200]
        status, text = get(port, "/metrics", other)
        assert status == 403
        who = "system:serviceaccount:default:other"
        assert message(text).startswith(f'forbidden: User "{who}" cannot get path "/metrics"')
        status, text = get(port, "/metrics", reader)
        assert (status, "scheduler_schedule_attempts_total" in text) == (200, True)
        assert get(port, "/configz", reader)[0] == 403
        assert get(port, "/debug/queue", "admin-token")[0] == 200

        until(ksched, lambda: get(port, "/metrics", context=clients.context("ada"))[0] == 200)
        assert get(port, "/metrics", context=clients.context("bob"))[0] == 403
        masters = clients.context("bob", "system:masters")
        assert get(port, "/debug/queue", context=masters)[0] == 200

        plain = http.client.HTTPConnection(HOST, port, timeout=20)
        plain.request("GET", "/metrics")
        with pytest.raises((OSError, http.client.HTTPException)):
            plain.getresponse()
        plain.close()


def test_certificate_files_are_rotated_while_it_runs(plane: ControlPlane, tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def issue() -> ssl.SSLContext:
        authority = trustme.CA()
        leaf = authority.issue_cert(HOST)
        key.write_bytes(leaf.private_key_pem.bytes())
        certificate.write_bytes(leaf.cert_chain_pems[0].bytes())
        context = ssl.create_default_context()
        authority.configure_trust(context)
        return context

    plane.kubectl("apply", "-f", str(CONFIG / "rbac.yaml"))
    first = issue()
    (port,) = free_ports(1)
    flags = (f"--secure-port={port}", f"--bind-address={HOST}", f"--tls-cert-file={certificate}")
    with plane.ksched("rotated", flags=(*flags, f"--tls-private-key-file={key}")) as ksched:
        until(ksched, lambda: get(port, "/healthz", context=first) == (200, "ok"))
        second = issue()
        until(ksched, lambda: get(port, "/healthz", context=second) == (200, "ok"))
        status, problem = get(port, "/healthz", context=first)
        assert status == 0
        assert "CERTIFICATE_VERIFY_FAILED" in problem
