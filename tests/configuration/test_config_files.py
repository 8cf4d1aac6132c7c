"""The files in ``config/`` that users copy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import yaml

from ksched.api.watched_kinds import WATCHED_KINDS
from ksched.configuration import SchedulerConfiguration, dump_config, load_config, plugin_args
from ksched.configuration.flags import add_run_flags
from ksched.configuration.serving_flags import ALWAYS_ALLOW_PATHS

CONFIG = Path(__file__).resolve().parents[2] / "config"
EXAMPLES = sorted((CONFIG / "examples").glob("*.yaml"))


DEVICES = "resource.k8s.io"
READER_BINDING = "ksched-authentication-reader"


def objects(file: str) -> dict[str, Any]:
    """The objects of a file by kind; each kind occurs once, but for one binding."""
    found = list(yaml.safe_load_all((CONFIG / file).read_text()))
    by_kind = {one["kind"]: one for one in found if one["metadata"]["name"] != READER_BINDING}
    assert len(by_kind) == len([one for one in found if one["metadata"]["name"] != READER_BINDING])
    return by_kind


def test_the_default_file_is_the_built_in_configuration_written_out() -> None:
    text = (CONFIG / "default.yaml").read_text()
    assert text == dump_config(SchedulerConfiguration())
    assert load_config(text) == SchedulerConfiguration()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_loads_without_a_warning_and_says_something(path: Path) -> None:
    warnings: list[str] = []
    config = load_config(path.read_text(), warnings.append)
    assert warnings == []
    assert config != SchedulerConfiguration()


def test_bin_packing_packs() -> None:
    config = load_config((CONFIG / "examples/bin-packing.yaml").read_text())
    args = plugin_args(config.profiles[0], "NodeResourcesFit")
    assert args.scoring_strategy.type == "MostAllocated"  # type: ignore[union-attr]
    multi_point = [plugin.name for plugin in config.profiles[0].plugins.multi_point.enabled]
    assert "NodeResourcesBalancedAllocation" not in multi_point


def test_the_roles_name_what_they_grant_and_grant_no_more() -> None:
    rbac = objects("rbac.yaml")
    rules = [*rbac["ClusterRole"]["rules"], *rbac["Role"]["rules"]]
    granted = [
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert not [grant for grant in granted if "*" in grant]
    writes = {grant for grant in granted if grant[2] not in ("get", "list", "watch")}
    assert writes == {
        ("", "pods", "delete"),
        ("", "pods/binding", "create"),
        ("", "pods/status", "patch"),
        ("", "persistentvolumes", "update"),
        ("", "persistentvolumeclaims", "update"),
        *((DEVICES, "resourceclaims", verb) for verb in ("create", "update", "delete")),
        *((DEVICES, "resourceclaims/status", verb) for verb in ("update", "patch")),
        *((DEVICES, "resourceclaims/binding", verb) for verb in ("update", "patch")),
        ("events.k8s.io", "events", "create"),
        ("events.k8s.io", "events", "patch"),
        ("", "events", "create"),
        ("", "events", "patch"),
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
        ("coordination.k8s.io", "leases", "create"),
        ("coordination.k8s.io", "leases", "update"),
    }
    # Events of the lease and the lease itself are of one namespace.
    cluster = {resource for rule in rbac["ClusterRole"]["rules"] for resource in rule["resources"]}
    assert "leases" not in cluster
    assert not {"secrets", "configmaps"} & cluster


def test_the_role_of_commands_that_read_may_only_read_what_is_watched() -> None:
    rbac = objects("rbac-read-only.yaml")
    rules = rbac["ClusterRole"]["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "watch"}
    granted = {
        (group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    watched = {(row.resource.group, row.resource.plural) for row in WATCHED_KINDS}
    others = {("apps", "deployments"), ("scheduling.k8s.io", "priorityclasses")}
    assert granted == watched | others
    (subject,) = rbac["ClusterRoleBinding"]["subjects"]
    assert subject["name"] == rbac["ServiceAccount"]["metadata"]["name"]


def test_the_bindings_give_the_roles_to_the_service_account() -> None:
    rbac = objects("rbac.yaml")
    account = rbac["ServiceAccount"]["metadata"]
    for binding, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        assert rbac[binding]["roleRef"]["name"] == rbac[role]["metadata"]["name"]
        (subject,) = rbac[binding]["subjects"]
        assert (subject["name"], subject["namespace"]) == ("ksched", "kube-system")
        assert (account["name"], account["namespace"]) == ("ksched", "kube-system")


def test_the_client_ca_is_read_by_the_role_made_for_it() -> None:
    found = yaml.safe_load_all((CONFIG / "rbac.yaml").read_text())
    (binding,) = [one for one in found if one["metadata"]["name"] == READER_BINDING]
    assert (binding["kind"], binding["metadata"]["namespace"]) == ("RoleBinding", "kube-system")
    assert binding["roleRef"]["name"] == "extension-apiserver-authentication-reader"
    (subject,) = binding["subjects"]
    assert (subject["name"], subject["namespace"]) == ("ksched", "kube-system")


def test_the_deployment_is_probed_by_https_and_open_to_nobody_else() -> None:
    pod = objects("deployment.yaml")["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container[name]["httpGet"]
        assert (probe["scheme"], probe["path"] in ALWAYS_ALLOW_PATHS) == ("HTTPS", True)
    flags = " ".join(container["command"])
    assert "--insecure-loopback" not in flags
    assert "--authorization-always-allow-paths" not in flags


def test_the_deployment_fits_its_roles_its_flags_and_its_configuration() -> None:
    deployment, rbac = objects("deployment.yaml"), objects("rbac.yaml")
    pod = deployment["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert deployment["Deployment"]["spec"]["replicas"] == 2
    assert pod["serviceAccountName"] == rbac["ServiceAccount"]["metadata"]["name"]

    program, command, *flags = container["command"]
    assert (program, command) == ("ksched", "run")
    parser = argparse.ArgumentParser()
    add_run_flags(parser)
    parsed = parser.parse_args(flags)
    (mount,) = container["volumeMounts"]
    assert parsed.config == f"{mount['mountPath']}/config.yaml"
    assert container["ports"][0]["containerPort"] == parsed.secure_port

    config = load_config(deployment["ConfigMap"]["data"]["config.yaml"])
    assert config.leader_election.leader_elect
    named = [rule for rule in rbac["Role"]["rules"] if "resourceNames" in rule]
    assert [rule["resourceNames"] for rule in named] == [[config.leader_election.resource_name]]
    assert config.leader_election.resource_namespace == rbac["Role"]["metadata"]["namespace"]


def test_the_container_runs_with_as_little_as_possible() -> None:
    pod = objects("deployment.yaml")["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert all("hostPath" not in volume for volume in pod["volumes"])
