"""What a pod or node looks like once the server has stored it."""

from __future__ import annotations

import pytest

from ksched.apiserver.admission import qos_class

PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NOT_READY = {
    "key": "node.kubernetes.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 300,
}
UNREACHABLE = {**NOT_READY, "key": "node.kubernetes.io/unreachable"}


async def test_a_bare_pod_gets_all_defaults(client):
    pod = await client.create_pod("web", containers=[{"name": "c", "image": "nginx"}])
    assert pod["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": [NOT_READY, UNREACHABLE],
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:2", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
    ],
)
async def test_pull_policy_follows_the_tag(client, image, policy):
    pod = await client.create_pod("web", containers=[{"name": "c", "image": image}])
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


async def test_requests_default_to_limits(client):
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    container = {"name": "c", "image": "x", "resources": resources}
    pod = await client.create_pod("web", containers=[container])
    stored = pod["spec"]["containers"][0]["resources"]
    assert stored["requests"] == {"cpu": "500m", "memory": "1Gi"}


async def test_host_network_ports_are_host_ports(client):
    container = {"name": "c", "image": "x", "ports": [{"containerPort": 80}]}
    pod = await client.create_pod("web", containers=[container], hostNetwork=True)
    [port] = pod["spec"]["containers"][0]["ports"]
    assert port == {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        pytest.param([], [NOT_READY, UNREACHABLE], id="none"),
        pytest.param([{"operator": "Exists"}], [{"operator": "Exists"}], id="tolerates all"),
        pytest.param(
            [{"key": NOT_READY["key"], "operator": "Exists"}],
            [{"key": NOT_READY["key"], "operator": "Exists"}, UNREACHABLE],
            id="tolerates one with any effect",
        ),
        pytest.param(
            [{"key": NOT_READY["key"], "operator": "Exists", "effect": "NoSchedule"}],
            [
                {"key": NOT_READY["key"], "operator": "Exists", "effect": "NoSchedule"},
                NOT_READY,
                UNREACHABLE,
            ],
            id="another effect does not count",
        ),
    ],
)
async def test_default_tolerations(client, given, stored):
    assert (await client.create_pod("web", tolerations=given))["spec"]["tolerations"] == stored


async def test_priority_comes_from_the_class(client):
    body = {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}
    await client.create(CLASSES, body)
    spec = (await client.create_pod("web", priorityClassName="high"))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


@pytest.mark.parametrize(
    ("name", "value"),
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)],
)
async def test_system_classes_are_built_in(client, name, value):
    pod = await client.create_pod("web", priorityClassName=name)
    assert pod["spec"]["priority"] == value


async def test_an_unknown_class_is_forbidden(client):
    body = client.pod("web", priorityClassName="nope")
    status, answer = await client.send("POST", PODS, body)
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'pods "web" is forbidden: no PriorityClass with name nope was found'
    )


async def test_the_global_default_applies_to_pods_without_a_class(client):
    await client.create(CLASSES, {"metadata": {"name": "d"}, "value": 7, "globalDefault": True})
    spec = (await client.create_pod("web"))["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("d", 7)
    second = {"metadata": {"name": "e"}, "value": 8, "globalDefault": True}
    status, answer = await client.send("POST", CLASSES, second)
    assert status == 403
    assert "PriorityClass d is already marked as default" in answer["message"]


async def test_a_priority_of_ones_own_must_agree_with_the_class(client):
    status, answer = await client.send("POST", PODS, client.pod("web", priority=5))
    assert status == 403
    assert "(5) must not be provided in pod spec" in answer["message"]
    assert "computed 0" in answer["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param({"value": 1_000_000_001}, "maximum allowed value", id="too high"),
        pytest.param({"metadata": {"name": "system-mine"}}, "reserved for system", id="name"),
    ],
)
async def test_priority_classes_have_limits(client, body, words):
    status, answer = await client.send("POST", CLASSES, {"metadata": {"name": "x"}, **body})
    assert status == 422
    assert words in answer["message"]


async def test_a_gated_pod_says_so(client):
    pod = await client.create_pod("web", schedulingGates=[{"name": "example.com/gate"}])
    [condition] = pod["status"]["conditions"]
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
        "lastProbeTime": None,
        "lastTransitionTime": "2023-11-14T22:13:20Z",
    }


async def test_match_label_keys_become_selector_terms(client):
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["version", "absent"],
        "mismatchLabelKeys": ["tenant"],
    }
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["version"],
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    pod = await client.create_pod(
        "web",
        metadata={"labels": {"version": "1", "tenant": "t"}},
        affinity={"podAffinity": {required: [term]}},
        topologySpreadConstraints=[constraint],
    )
    [stored] = pod["spec"]["affinity"]["podAffinity"][required]
    assert stored["labelSelector"]["matchExpressions"] == [
        {"key": "version", "operator": "In", "values": ["1"]},
        {"key": "tenant", "operator": "NotIn", "values": ["t"]},
    ]
    [spread] = pod["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchExpressions"] == [
        {"key": "version", "operator": "In", "values": ["1"]}
    ]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param([{}], "BestEffort", id="nothing asked"),
        pytest.param([{"requests": {"cpu": "1"}}], "Burstable", id="request only"),
        pytest.param(
            [
                {
                    "requests": {"cpu": "1", "memory": "1Gi"},
                    "limits": {"cpu": "1", "memory": "1Gi"},
                }
            ],
            "Guaranteed",
            id="requests are limits",
        ),
        pytest.param(
            [
                {
                    "requests": {"cpu": "1", "memory": "1Gi"},
                    "limits": {"cpu": "1", "memory": "1Gi"},
                },
                {},
            ],
            "Burstable",
            id="one container without",
        ),
        pytest.param([{"requests": {"example.com/gpu": "1"}}], "BestEffort", id="extended only"),
    ],
)
def test_quality_of_service(resources, expected):
    assert qos_class({"containers": [{"resources": r} for r in resources]}) == expected


async def test_a_nodes_allocatable_defaults_to_its_capacity(client):
    capacity = {"cpu": "4000m", "memory": "8192Mi", "pods": 110}
    node = {"metadata": {"name": "n"}, "status": {"capacity": capacity}}
    stored = (await client.create("/api/v1/nodes", node))["status"]
    assert stored["capacity"] == {"cpu": "4", "memory": "8Gi", "pods": "110"}
    assert stored["allocatable"] == stored["capacity"]


async def test_the_server_adds_no_labels_or_taints_to_nodes(client):
    node = await client.create_node("n1")
    assert "labels" not in node["metadata"]
    assert "taints" not in node["spec"]


async def test_namespaces_are_labelled_with_their_name(client):
    namespace = await client.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
