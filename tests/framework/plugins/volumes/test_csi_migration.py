"""csi-translation-lib/plugins: what CSI drivers call the volumes of former in-tree plugins."""

from __future__ import annotations

from typing import Any

import pytest

from ksched.api.storage import PersistentVolume
from ksched.framework.plugins.volumes.csi_migration import (
    BY_NAME,
    InTreePlugin,
    Untranslatable,
    in_tree_plugin,
    translated_affinity,
    volume_handle,
)
from ksched.testing.storage_builders import VolumeBuilder, make_volume

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
EBS_KEY = "topology.ebs.csi.aws.com/zone"


def ebs(volume_id: str = "vol-1") -> VolumeBuilder:
    return make_volume("v").source(awsElasticBlockStore={"volumeID": volume_id})


def gce(**labels: str) -> VolumeBuilder:
    names = {"zone": ZONE, "beta": BETA_ZONE}
    volume = make_volume("v").source(gcePersistentDisk={"pdName": "d"})
    return volume.label({names[key]: value for key, value in labels.items()})


def plugin_of(volume: PersistentVolume) -> InTreePlugin:
    plugin = in_tree_plugin(volume.spec)
    assert plugin is not None
    return plugin


@pytest.mark.parametrize(
    ("volume", "driver", "handle"),
    [
        pytest.param(ebs("vol-1"), "ebs.csi.aws.com", "vol-1", id="EBS"),
        pytest.param(ebs("aws://za/vol-1"), "ebs.csi.aws.com", "vol-1", id="EBS with a zone"),
        pytest.param(ebs("aws:///vol-1"), "ebs.csi.aws.com", "vol-1", id="EBS without a zone"),
        pytest.param(ebs("anything"), "ebs.csi.aws.com", "anything", id="EBS, bare"),
        pytest.param(
            gce(),
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
            id="GCE",
        ),
        pytest.param(
            gce(zone="us-e1-a"),
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/us-e1-a/disks/d",
            id="GCE in a zone",
        ),
        pytest.param(
            gce(zone="us-e1-a", beta="us-e1-b"),
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/us-e1-b/disks/d",
            id="GCE, the older label first",
        ),
        pytest.param(
            gce(zone="us-e1-a__us-e1-b"),
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/regions/us-e1/disks/d",
            id="GCE in a region",
        ),
        pytest.param(
            make_volume("v").source(azureDisk={"diskURI": "/d", "kind": "Managed"}),
            "disk.csi.azure.com",
            "/d",
            id="Azure disk",
        ),
        pytest.param(
            make_volume("v").source(cinder={"volumeID": "c"}),
            "cinder.csi.openstack.org",
            "c",
            id="Cinder",
        ),
        pytest.param(
            make_volume("v").source(portworxVolume={"volumeID": "p"}),
            "pxd.portworx.com",
            "p",
            id="Portworx",
        ),
    ],
)
def test_a_volume_has_the_drivers_name_for_it(
    volume: VolumeBuilder, driver: str, handle: str
) -> None:
    built = volume.obj()
    plugin = plugin_of(built)
    assert (plugin.driver, volume_handle(plugin, built)) == (driver, handle)


@pytest.mark.parametrize(
    ("volume", "problem"),
    [
        pytest.param(ebs("aws://za/disk"), "Invalid format for AWS volume", id="EBS"),
        pytest.param(gce(zone="a__b"), "zone in unexpected format", id="GCE zone"),
        pytest.param(gce(zone="us-e1-a__us-w1-b"), "multiple or no regions", id="GCE regions"),
        pytest.param(
            make_volume("v").source(azureDisk={"diskURI": "/d", "kind": "Dedicated"}),
            "kind(Dedicated) is not supported",
            id="Azure disk",
        ),
    ],
)
def test_what_a_driver_could_not_be_told(volume: VolumeBuilder, problem: str) -> None:
    built = volume.obj()
    with pytest.raises(Untranslatable, match=problem.replace("(", "\\(").replace(")", "\\)")):
        volume_handle(plugin_of(built), built)


def keys(volume: VolumeBuilder) -> list[list[tuple[str, list[str]]]] | None:
    """Label keys and values of the translated terms; ``None`` if every node will do."""
    built = volume.obj()
    affinity = translated_affinity(plugin_of(built), built)
    if affinity is None or affinity.required is None:
        return None
    return [
        [(wanted.key, wanted.values) for wanted in term.match_expressions]
        for term in affinity.required.node_selector_terms
    ]


@pytest.mark.parametrize(
    ("volume", "terms"),
    [
        pytest.param(ebs(), None, id="everywhere"),
        pytest.param(ebs().reachable_from(ZONE, "a"), [[(EBS_KEY, ["a"])]], id="a zone"),
        pytest.param(
            ebs().reachable_from(BETA_ZONE, "a"), [[(EBS_KEY, ["a"])]], id="a zone, older label"
        ),
        pytest.param(
            ebs().label({ZONE: "a__b"}), [[(EBS_KEY, ["a", "b"])]], id="zones in a label only"
        ),
        pytest.param(
            ebs().label({ZONE: "b"}).reachable_from(ZONE, "a"),
            [[(EBS_KEY, ["a"])]],
            id="the affinity goes before the label",
        ),
        pytest.param(
            ebs().label({ZONE: "b"}).reachable_from("disk", "ssd"),
            [[("disk", ["ssd"]), (EBS_KEY, ["b"])]],
            id="the label narrows other terms",
        ),
        pytest.param(
            ebs().reachable_from(BETA_ZONE, "a").reachable_from(BETA_REGION, "r"),
            [[(EBS_KEY, ["a"])], [(REGION, ["r"])]],
            id="an older region becomes a newer one",
        ),
        pytest.param(
            ebs().reachable_from(ZONE, "a").reachable_from(BETA_REGION, "r"),
            [[(EBS_KEY, ["a"])], [(BETA_REGION, ["r"])]],
            id="unless the zone is new already",
        ),
        pytest.param(
            make_volume("v").source(azureDisk={"diskURI": "/d"}).reachable_from(ZONE, "a"),
            [[(ZONE, ["a"])]],
            id="a driver without a label of its own",
        ),
    ],
)
def test_zones_move_to_the_drivers_own_label(volume: VolumeBuilder, terms: Any) -> None:
    assert keys(volume) == terms


def test_what_took_over_and_what_did_not() -> None:
    replaced = {plugin.name.rpartition("/")[2] for plugin in BY_NAME.values() if plugin.is_replaced}
    assert replaced == {"aws-ebs", "gce-pd", "azure-disk", "cinder", "portworx-volume"}
    assert BY_NAME.keys() - {f"kubernetes.io/{name}" for name in replaced} == {
        "kubernetes.io/azure-file",
        "kubernetes.io/vsphere-volume",
    }
