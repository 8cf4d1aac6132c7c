"""/flagz, /statusz, /metrics and /debug/pprof beside the real kube-scheduler's.

Both answer the same request with the same status and content type; objects have the same fields.
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from lab.child_process import ChildProcess
from lab.control_plane import HOST, ControlPlane, free_ports

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CONFIG = Path(__file__).resolve().parents[2] / "config"
PATIENCE_SECONDS = 60.0
ACCEPTED = (
    "",
    "*/*",
    "text/*",
    "text/plain",
    "text/html",
    "text/html,*/*;q=0.1",
    "application/json",
    "application/yaml",
    "application/*",
    "application/json,text/plain;q=0.1",
    "application/vnd.kubernetes.protobuf",
    "text/plain;as=Flagz",
    "nonsense",
    *(
        f"application/{form};g=config.k8s.io;v={version};as={kind}"
        for form in ("json", "yaml")
        for version in ("v1alpha1", "v1beta1", "v1")
        for kind in ("Flagz", "Statusz")
    ),
    "application/json;v=v1beta1;as=Flagz",
    "*/*;g=config.k8s.io;v=v1beta1;as=Statusz",
    "text/plain;q=0.5,application/json;g=config.k8s.io;v=v1beta1;as=Flagz",
)
SAME = (
    *("leader-elect", "leader-elect-lease-duration", "leader-elect-renew-deadline"),
    *("leader-elect-retry-period", "leader-elect-resource-lock", "leader-elect-resource-name"),
    *("leader-elect-resource-namespace", "kube-api-qps", "kube-api-burst", "bind-address"),
    *("authentication-token-webhook-cache-ttl", "authorization-always-allow-paths", "profiling"),
    *("authentication-skip-lookup", "authentication-tolerate-lookup-failure", "master"),
    *("client-ca-file", "cert-dir", "logging-format", "kube-api-content-type", "v"),
)
"""Flags with the same values in both programs."""
SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
POD: dict[str, Any] = {
    "metadata": {"name": "web"},
    "spec": {
        "schedulerName": "nobody",
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {
                    "requests": {"cpu": "100m", "memory": "10Mi", "example.com/thing": "2"},
                    "limits": {"cpu": "1500m", "memory": "1Gi", "example.com/thing": "2"},
                },
            }
        ],
        "initContainers": [{"name": "i", "image": "i", "resources": {"requests": {"cpu": "333m"}}}],
    },
}


class Answer(NamedTuple):
    status: int
    content_type: str
    warning: str
    text: str


def get(port: int, path: str, accept: str = "", agent: str = "test") -> Answer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    wire = http.client.HTTPSConnection(HOST, port, timeout=20, context=context)
    headers = {"Authorization": "Bearer admin-token", "User-Agent": agent}
    if accept:
        headers["Accept"] = accept
    try:
        wire.request("GET", path, headers=headers)
        got = wire.getresponse()
        text = got.read().decode(errors="replace")
        return Answer(got.status, got.headers["Content-Type"], got.headers["Warning"], text)
    except (OSError, http.client.HTTPException) as error:
        return Answer(0, "", "", str(error))
    finally:
        wire.close()


@pytest.fixture(scope="module")
def ports(control_plane: ControlPlane) -> Iterator[tuple[int, int]]:
    """Both schedulers, under different names and leases, each with its port."""
    plane = control_plane
    plane.kubectl("apply", "-f", str(CONFIG / "rbac.yaml"))
    theirs, ours = free_ports(2)

    def flags(port: int) -> tuple[str, ...]:
        return (f"--secure-port={port}", f"--bind-address={HOST}")

    kubeconfig = f"--authentication-kubeconfig={plane.kubeconfig('admin')}"
    authorization = kubeconfig.replace("authentication", "authorization")
    with (
        plane.kube_scheduler(flags=(*flags(theirs), kubeconfig, authorization)) as upstream,
        plane.ksched(scheduler_name="ksched", flags=flags(ours)) as ksched,
    ):
        until(upstream, lambda: get(theirs, "/readyz").status == 200)
        until(ksched, lambda: get(ours, "/readyz").status == 200)
        yield theirs, ours


def until(program: ChildProcess, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, program.log()[-3000:]
        program.must_run(0.2)


@pytest.mark.parametrize("accept", ACCEPTED)
@pytest.mark.parametrize("path", ["/flagz", "/statusz"])
def test_representations_are_negotiated_alike(
    ports: tuple[int, int], path: str, accept: str
) -> None:
    theirs, ours = (get(port, path, accept) for port in ports)
    assert ours[:3] == theirs[:3]
    if theirs.status != 200:
        assert content(ours) == content(theirs)
    elif "as=" in theirs.content_type:
        assert fields(content(ours)) == fields(content(theirs))
    else:
        words = re.compile(r"[a-z-]+ (?=(flagz|statusz)\n)")
        assert (
            words.sub("", ours.text).split("\n")[:3] == words.sub("", theirs.text).split("\n")[:3]
        )


@pytest.mark.parametrize("agent", ["curl/8.5.0", "Mozilla/5.0", "other"])
@pytest.mark.parametrize("query", ["", "?pretty=1", "?pretty=false"])
def test_json_is_indented_alike(ports: tuple[int, int], agent: str, query: str) -> None:
    accept = "application/json;g=config.k8s.io;v=v1beta1;as=Statusz"
    theirs, ours = (get(port, f"/statusz{query}", accept, agent).text for port in ports)
    assert ours.startswith("{\n  ") == theirs.startswith("{\n  ")


def content(answer: Answer) -> Any:
    return yaml.safe_load(answer.text)


def fields(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Kind and version, and the type of every other field."""
    return {
        key: value if key in ("kind", "apiVersion") else type(value) for key, value in obj.items()
    }


def test_flags_of_kube_scheduler_are_shown_under_their_names(ports: tuple[int, int]) -> None:
    accept = "application/json;g=config.k8s.io;v=v1beta1;as=Flagz"
    theirs, ours = (json.loads(get(port, "/flagz", accept).text)["flags"] for port in ports)
    assert set(theirs) - set(ours) == {"help", "version"}
    assert {name: ours[name] for name in SAME} == {name: theirs[name] for name in SAME}


def test_health_checks_are_counted_alike(ports: tuple[int, int]) -> None:
    def types(port: int) -> set[str]:
        for path in ("/healthz", "/livez", "/readyz"):
            get(port, path)
        text = get(port, "/metrics/slis").text
        labels = [labels for name, labels, _ in SAMPLE.findall(text)]
        assert labels
        return {re.sub(r'="\w[\w-]*"', "", one) for one in labels}

    theirs, ours = map(types, ports)
    assert theirs == ours == {"name,type", "name,status,type"}


def test_resources_of_pods_are_the_same_lines(
    ports: tuple[int, int], control_plane: ControlPlane
) -> None:
    created = control_plane.request("POST", "/api/v1/namespaces/default/pods", POD)
    assert created.status == 201, created.body

    def samples(port: int) -> set[tuple[str, str, float]]:
        text = get(port, "/metrics/resources").text
        return {(name, labels, float(value)) for name, labels, value in SAMPLE.findall(text)}

    theirs, ours = (set[tuple[str, str, float]]() for _ in ports)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(theirs) < 6 or len(ours) < 6:
        assert time.monotonic() < deadline, (theirs, ours)
        time.sleep(0.2)
        theirs, ours = map(samples, ports)
    assert ours == theirs


def metrics(port: int) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    """Values by name and labels."""
    found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in text_string_to_metric_families(get(port, "/metrics").text):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_features_have_the_stage_and_state_of_kube_scheduler(ports: tuple[int, int]) -> None:
    theirs, ours = (metrics(port)["kubernetes_feature_enabled"] for port in ports)
    assert set(ours) <= set(theirs)
    differing = {dict(labels)["name"] for labels, value in ours.items() if theirs[labels] != value}
    assert differing == {"OpportunisticBatching"}


def test_metrics_of_builds_and_requests_have_the_same_labels(
    ports: tuple[int, int], control_plane: ControlPlane
) -> None:
    # One that does not fit anywhere, so that ksched writes why.
    pod = {"metadata": {"name": "big"}, "spec": {**POD["spec"], "schedulerName": "ksched"}}
    created = control_plane.request("POST", "/api/v1/namespaces/default/pods", pod)
    assert created.status == 201, created.body
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "rest_client_response_size_bytes_count" not in (of_ours := metrics(ports[1])):
        assert time.monotonic() < deadline, sorted(of_ours)
        time.sleep(0.2)
    theirs, ours = (
        {
            name: {label for labels in series for label in labels_of(labels)}
            for name, series in found.items()
            if name.startswith(("rest_client_", "kubernetes_build_info"))
            and not name.startswith("rest_client_transport_")
        }
        for found in (metrics(ports[0]), of_ours)
    )
    assert set(theirs) <= set(ours)
    assert {name: ours[name] for name in theirs} == theirs


def labels_of(labels: frozenset[tuple[str, str]]) -> Iterator[str]:
    """The names of labels; of a bound its value too."""
    for name, value in labels:
        yield f"le={float(value)}" if name == "le" else name


PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily"


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "nonsense",
        "text/plain;version=0.0.4",
        f"{PROTOBUF};encoding=delimited",
        f"{PROTOBUF};encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3",
        f"{PROTOBUF};encoding=delimited;q=0.3,text/plain;version=0.0.4;q=0.7",
        f"text/plain;q=0.5,{PROTOBUF};encoding=delimited;q=0.5",
        f"*/*,{PROTOBUF};encoding=delimited;q=0.1",
        f"{PROTOBUF};encoding=other",
        PROTOBUF,
    ],
)
def test_the_format_of_metrics_is_negotiated_alike(ports: tuple[int, int], accept: str) -> None:
    theirs, ours = (get(port, "/metrics", accept).content_type for port in ports)
    assert re.sub(r"; escaping=\w+", "", theirs) == re.sub(r"; escaping=\w+", "", ours)


def test_profiles_are_found_alike(ports: tuple[int, int]) -> None:
    for path in ("", "/", "/profile?seconds=1", "/goroutine?debug=1", "/nonsense"):
        theirs, ours = (get(port, f"/debug/pprof{path}") for port in ports)
        assert ours.status == theirs.status
        assert ours.content_type == theirs.content_type or path in ("", "/nonsense")
