"""What the server refuses to store, and which pod fields may change.

Covers ``ksched.apiserver.pod_validation`` too.
"""

from __future__ import annotations

import pytest

PODS = "/api/v1/namespaces/default/pods"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def container(**fields):
    return {"name": "c", "image": "x", **fields}


def node_affinity(requirement):
    term = {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: term}}}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param({"containers": []}, "spec.containers: Required value", id="no containers"),
        pytest.param(
            {"containers": [{"name": "c"}]}, "spec.containers[0].image: Required value", id="image"
        ),
        pytest.param(
            {"containers": [container(), container()]},
            'spec.containers[1].name: Duplicate value: "c"',
            id="same name twice",
        ),
        pytest.param(
            {"containers": [container(name="A_b")]},
            'spec.containers[0].name: Invalid value: "A_b": a lowercase RFC 1123 label',
            id="container name",
        ),
        pytest.param(
            {"containers": [container(resources={"requests": {"cpu": "-1"}})]},
            'resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
            id="negative request",
        ),
        pytest.param(
            {"containers": [container(resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}})]},
            'resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
            id="request beyond limit",
        ),
        pytest.param(
            {"containers": [container(resources={"requests": {"foo": 1}})]},
            '[foo]: Invalid value: "foo": must be a standard resource type or fully qualified',
            id="unknown resource",
        ),
        pytest.param(
            {"containers": [container(resources={"requests": {"example.com/gpu": 1}})]},
            "resources.limits: Required value: Limit must be set for non overcommitable resources",
            id="extended resource without limit",
        ),
        pytest.param(
            {"containers": [container(resources={"limits": {"example.com/gpu": "500m"}})]},
            'limits[example.com/gpu]: Invalid value: "500m": must be an integer',
            id="half an extended resource",
        ),
        pytest.param(
            {"containers": [container(ports=[{"containerPort": 70000}])]},
            "ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            id="port",
        ),
        pytest.param(
            {"restartPolicy": "Sometimes"},
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", ',
            id="restart policy",
        ),
        pytest.param(
            {"tolerations": [{"key": "a", "operator": "Like"}]},
            'spec.tolerations[0].operator: Unsupported value: "Like"',
            id="toleration operator",
        ),
        pytest.param(
            {"tolerations": [{"operator": "Equal"}]},
            "operator must be Exists when `key` is empty",
            id="toleration without key",
        ),
        pytest.param(
            node_affinity({"key": "a", "operator": "Near"}),
            'matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator',
            id="node selector operator",
        ),
        pytest.param(
            node_affinity({"key": "a", "operator": "In"}),
            "matchExpressions[0].values: Required value: must be specified when `operator` is 'In'",
            id="node selector without values",
        ),
        pytest.param(
            {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": ""}]}}},
            f"podAffinity.{REQUIRED}[0].topologyKey: Required value: can not be empty",
            id="topology key",
        ),
        pytest.param(
            {
                "affinity": {
                    "podAntiAffinity": {
                        PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "a"}}]
                    }
                }
            },
            "weight: Invalid value: 101: must be in the range 1-100",
            id="weight",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{"topologyKey": "a", "maxSkew": 0}]},
            "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            id="skew",
        ),
        pytest.param(
            {"nodeSelector": {"a b": "c"}}, "spec.nodeSelector: Invalid value", id="node selector"
        ),
        pytest.param(
            {"nodeName": "n1", "schedulingGates": [{"name": "g"}]},
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
            id="bound and gated",
        ),
    ],
)
async def test_pods_that_make_no_sense_are_invalid(client, spec, problem):
    status, answer = await client.send("POST", PODS, client.pod("web", **spec))
    assert (status, answer["reason"]) == (422, "Invalid"), answer
    assert answer["message"].startswith('Pod "web" is invalid: ')
    assert problem in answer["message"]
    assert answer["details"]["causes"][0]["field"] in answer["message"]


async def test_all_problems_are_named_at_once(client):
    body = client.pod("Web", containers=[{"name": ""}])
    _, answer = await client.send("POST", PODS, body)
    fields = [cause["field"] for cause in answer["details"]["causes"]]
    assert fields == ["metadata.name", "spec.containers[0].name", "spec.containers[0].image"]
    assert answer["message"].startswith('Pod "Web" is invalid: [metadata.name: Invalid value: ')


@pytest.mark.parametrize("quantity", ["lots", "1.5.5", "1 Gi", ""])
async def test_nonsense_quantities_are_bad_requests(client, quantity):
    resources = {"requests": {"cpu": quantity}}
    body = client.pod("web", containers=[container(resources=resources)])
    status, answer = await client.send("POST", PODS, body)
    assert (status, answer["reason"]) == (400, "BadRequest")
    assert answer["message"].startswith(
        'Pod in version "v1" cannot be handled as a Pod: '
        "quantities must match the regular expression"
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([], id="a list"),
        pytest.param({"metadata": "web"}, id="metadata is a word"),
        pytest.param({"metadata": {"name": 5}}, id="the name is a number"),
        pytest.param({"metadata": {"name": "web"}, "spec": []}, id="spec is a list"),
        pytest.param(
            {"metadata": {"name": "web"}, "spec": {"containers": {"a": 1}}},
            id="containers are a map",
        ),
        pytest.param(
            {"metadata": {"name": "web"}, "spec": {"containers": ["c"]}}, id="a container is a word"
        ),
        pytest.param(
            {"metadata": {"name": "web", "labels": ["a"]}, "spec": {}}, id="labels are a list"
        ),
    ],
)
async def test_objects_of_the_wrong_shape_are_bad_requests(client, body):
    status, answer = await client.send("POST", PODS, body)
    assert (status, answer["reason"]) == (400, "BadRequest")
    assert await client.names(PODS) == []


@pytest.mark.parametrize(
    ("path", "name", "fine"),
    [
        (PODS, "a.b-c", True),
        (PODS, "A", False),
        (PODS, "-a", False),
        (PODS, "a" * 254, False),
        ("/api/v1/namespaces", "a.b", False),
        ("/api/v1/namespaces", "a" * 64, False),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "system:Scheduler", True),
    ],
)
async def test_names(client, path, name, fine):
    body = client.pod(name) if path == PODS else {"metadata": {"name": name}}
    status, _ = await client.send("POST", path, body)
    assert status == (201 if fine else 422)


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"labels": {"a b": "c"}}, id="label name"),
        pytest.param({"labels": {"a": "c d"}}, id="label value"),
        pytest.param({"labels": {"x/y/z": "c"}}, id="two slashes"),
        pytest.param({"annotations": {"a b": "c"}}, id="annotation name"),
    ],
)
async def test_labels_and_annotations(client, metadata):
    status, answer = await client.send("POST", PODS, client.pod("web", metadata=metadata))
    assert status == 422
    assert f"metadata.{next(iter(metadata))}: Invalid value" in answer["message"]


@pytest.mark.parametrize(
    ("taints", "problem"),
    [
        pytest.param([{"key": "a"}], "metadata.taints[0].effect: Required value", id="no effect"),
        pytest.param(
            [{"key": "a", "effect": "Never"}],
            'taints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", ',
            id="unknown effect",
        ),
        pytest.param(
            [{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute"}],
            "taints must be unique by key and effect pair",
            id="twice",
        ),
    ],
)
async def test_taints(client, taints, problem):
    node = {"metadata": {"name": "n"}, "spec": {"taints": taints}}
    status, answer = await client.send("POST", "/api/v1/nodes", node)
    assert status == 422
    assert problem in answer["message"]


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        pytest.param({"metadata": {"labels": {"a": "b"}}}, 200, id="labels may change"),
        pytest.param({"spec": {"nodeName": "n1"}}, 422, id="the node may not"),
        pytest.param({"spec": {"priority": 5}}, 422, id="nor the priority"),
        pytest.param({"spec": {"nodeSelector": {"a": "b"}}}, 422, id="nor the node selector"),
        pytest.param({"spec": {"activeDeadlineSeconds": 5}}, 200, id="a deadline may be set"),
        pytest.param({"spec": {"tolerations": []}}, 422, id="tolerations may not go"),
        pytest.param(
            {"spec": {"tolerations": [{"key": "mine", "operator": "Exists"}]}},
            200,
            id="default tolerations come back",
        ),
        pytest.param({"spec": {"schedulingGates": [{"name": "g"}]}}, 422, id="gates may not come"),
        pytest.param(
            {"spec": {"containers": [{"name": "c", "image": "new", "resources": {}}]}},
            422,
            id="a merge patch that drops container fields",
        ),
    ],
)
async def test_what_may_change_in_a_pod(client, patch, code):
    container = {"name": "c", "image": "x", "command": ["sleep"]}
    tolerations = [{"key": "mine", "operator": "Exists"}]
    await client.create_pod("web", containers=[container], tolerations=tolerations)
    status, answer = await client.patch(f"{PODS}/web", patch, "merge")
    assert status == code, answer


async def test_images_and_added_tolerations_may_change(client):
    pod = await client.create_pod("web")
    pod["spec"]["containers"][0]["image"] = "pause:4"
    pod["spec"]["tolerations"].append({"key": "a", "operator": "Exists"})
    updated = await client.ok("PUT", f"{PODS}/web", pod)
    assert updated["spec"]["containers"][0]["image"] == "pause:4"
    assert updated["metadata"]["generation"] == 2


async def test_a_gated_pod_may_lose_gates_and_narrow_its_selector(client):
    gates = [{"name": "a"}, {"name": "b"}]
    await client.create_pod("web", schedulingGates=gates, nodeSelector={"x": "1"})
    narrow = {"spec": {"nodeSelector": {"y": "2"}}}
    assert (await client.patch(f"{PODS}/web", narrow, "merge"))[0] == 200
    widen = {"spec": {"nodeSelector": {"x": None}}}
    assert (await client.patch(f"{PODS}/web", widen, "merge"))[0] == 422
    for left in ([{"name": "b"}], None):
        patch = {"spec": {"schedulingGates": left}}
        assert (await client.patch(f"{PODS}/web", patch, "merge"))[0] == 200
    assert (await client.bind("web", "n1"))[0] == 201


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        pytest.param(
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            {"spec": {"leaseDurationSeconds": 0}},
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            id="lease duration",
        ),
        pytest.param(
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {"spec": {"minAvailable": 1, "maxUnavailable": 1}},
            "minAvailable and maxUnavailable cannot be both set",
            id="budget with both bounds",
        ),
        pytest.param(
            "/apis/apps/v1/namespaces/default/deployments",
            {
                "spec": {
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {"metadata": {"labels": {"a": "c"}}, "spec": {}},
                }
            },
            "`selector` does not match template `labels`",
            id="deployment selects other pods",
        ),
        pytest.param(
            "/api/v1/namespaces/default/events",
            {"involvedObject": {"namespace": "kube-system"}},
            "does not match event.namespace",
            id="event elsewhere",
        ),
        pytest.param(
            "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups",
            {"spec": {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 2}}}},
            "must specify exactly one of: `basic`, `gang`",
            id="pod group of two policies",
        ),
        pytest.param(
            "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups",
            {"spec": {"schedulingPolicy": {"gang": {"minCount": 0}}}},
            "spec.schedulingPolicy.gang.minCount: Invalid value: 0: must be greater than or equal",
            id="gang of none",
        ),
    ],
)
async def test_rules_of_other_kinds(client, path, body, problem):
    status, answer = await client.send("POST", path, {"metadata": {"name": "x"}, **body})
    assert status == 422
    assert problem in answer["message"]
