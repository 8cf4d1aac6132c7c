"""Workloads with more or fewer replicas. Covers ``ksched.what_if.new_pods`` too."""

from __future__ import annotations

import pytest

from ksched.errors import KschedError
from ksched.testing import cluster, make_node, make_pod
from ksched.what_if.changes import Changes, Scale
from ksched.what_if.predicting import predict
from lab.what_if_clusters import copied

LATE_STORAGE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "late"},
    "provisioner": "example.com/disks",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def workload(kind, name, *, owner=None, uid_of="", **spec):
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
        },
    }
    metadata = {"name": name, "namespace": "default"}
    if owner is not None:
        reference = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": owner,
            "controller": True,
        }
        metadata["ownerReferences"] = [{**reference, "uid": uid_of}]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


def pod_of(owner, name, node=""):
    meta = owner["metadata"]
    pod = make_pod(name).req(cpu="1").label(app=meta["name"])
    reference = {
        "apiVersion": "apps/v1",
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    pod = pod.merge({"metadata": {"ownerReferences": [reference]}})
    return pod.node(node) if node else pod


async def scaled(c, kind, name, replicas):
    changes = Changes(scale=(Scale(kind, "default", name, replicas),))
    return await predict(await copied(c), changes)


async def test_a_deployment_without_pods_is_scaled_by_its_template():
    async with cluster([make_node("n1").capacity(cpu="2")], start=False) as c:
        (deployment,) = await c.create(workload("Deployment", "web", replicas=0))
        uid = deployment["metadata"]["uid"]
        for revision in ("2", "10", "9"):
            one = workload("ReplicaSet", f"web-{revision}", owner="web", uid_of=uid, replicas=0)
            one["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": revision}
            await c.create(one)
        await c.create(workload("ReplicaSet", "other", replicas=0))
        prediction = await scaled(c, "deployment", "web", 3)
    assert [one.after for one in prediction.fates] == ["n1", "n1", ""]
    assert {one.workload for one in prediction.fates} == {"default/replicaset/web-10"}
    assert len({one.pod for one in prediction.fates}) == 3
    assert prediction.fates[0].pod.startswith("default/web-10-")


async def test_more_replicas_are_like_the_pods_there_are():
    async with cluster([make_node("n1").capacity(cpu="8")], start=False) as c:
        (replica_set,) = await c.create(workload("ReplicaSet", "web", replicas=1))
        # Admission has changed it.
        await c.create(pod_of(replica_set, "web-1", "n1").req(cpu="3"))
        prediction = await scaled(c, "replicaset", "web", 3)
    assert [one.after for one in prediction.fates] == ["n1", ""]


async def test_fewer_replicas_end_those_that_a_controller_deletes_first():
    async with cluster(3, start=False) as c:
        (replica_set,) = await c.create(workload("ReplicaSet", "web", replicas=5))
        await c.create(
            pod_of(replica_set, "a", "n1"),
            pod_of(replica_set, "b", "n1"),
            pod_of(replica_set, "cheap", "n2").annotation(
                {"controller.kubernetes.io/pod-deletion-cost": "-5"}
            ),
            pod_of(replica_set, "d", "n3"),
            pod_of(replica_set, "waits"),
        )
        prediction = await scaled(c, "replicaset", "web", 2)
    left = [one.pod for one in prediction.departures]
    assert left == ["default/waits", "default/cheap", "default/a"]
    assert (prediction.fates, prediction.is_worse) == ([], False)


async def test_a_stateful_set_grows_by_ordinals_with_claims_of_their_own():
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    async with cluster(2, start=False) as c:
        await c.create(LATE_STORAGE)
        made = workload("StatefulSet", "db", replicas=1, volumeClaimTemplates=[claim])
        (stateful_set,) = await c.create(made)
        await c.create(pod_of(stateful_set, "db-1", "n1"))
        grown = await scaled(c, "statefulset", "db", 3)
        shrunk = await scaled(c, "statefulset", "db", 0)
    assert [one.pod for one in grown.fates] == ["default/db-0", "default/db-2"]
    assert all(one.after for one in grown.fates), [one.message for one in grown.fates]
    assert [one.pod for one in shrunk.departures] == ["default/db-1"]


async def test_a_workload_that_does_not_exist_is_named():
    async with cluster(1, start=False) as c:
        await c.create(workload("Deployment", "new", replicas=0))
        with pytest.raises(KschedError, match="no deployment is named web in namespace default"):
            await scaled(c, "deployment", "web", 3)
        with pytest.raises(KschedError, match="deployment new has no ReplicaSet yet"):
            await scaled(c, "deployment", "new", 3)


async def test_the_claim_of_an_ephemeral_volume_is_made_for_the_new_pod():
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "web-scratch", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late"},
    }
    async with cluster(2, start=False) as c:
        await c.create(LATE_STORAGE, claim)
        await c.create(make_pod("web").ephemeral("scratch").node("n1").owner("ReplicaSet", "web"))
        prediction = await predict(await copied(c), Changes(drain=("n1",)))
    assert [(one.after, one.message) for one in prediction.fates] == [("n2", "")]
