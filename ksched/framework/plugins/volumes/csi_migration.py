"""Translation of in-tree volumes to the CSI drivers that replaced their plugins.

Follows csi-translation-lib (v0.36), as far as a scheduler needs: driver, volume handle, topology.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from msgspec.structs import replace

from ksched.api.objects import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Volume
from ksched.api.storage import PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity

BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
ZONES_SEPARATOR: Final = "__"

_UNSPECIFIED = "UNSPECIFIED"
_EBS_VOLUME = re.compile(r"vol-[^/]*")


class Untranslatable(Exception):
    """A volume that cannot be translated for the CSI driver."""


class InTreePlugin(NamedTuple):
    """A former in-tree plugin and the CSI driver that replaced it.

    ``is_replaced`` is false where nodes may still run the old code: such volumes are not CSI
    volumes yet. ``handle`` returns the driver's name of a volume, given its source and its zones'
    label ("" for one without labels, such as an inline volume).
    """

    name: str
    driver: str
    source: str
    handle: Callable[[Any, str], str]
    topology_key: str = ""
    is_replaced: bool = True


def _ebs_handle(source: Any, zones: str) -> str:
    volume_id: str = source.volume_id
    if not volume_id.startswith("aws://"):
        return volume_id
    path = urlsplit(volume_id).path.strip("/")
    if _EBS_VOLUME.fullmatch(path) is None:
        raise Untranslatable(
            "failed to translate Kubernetes ID to EBS Volume ID "
            f"Invalid format for AWS volume ({volume_id})"
        )
    return path


def _gce_handle(source: Any, zones: str) -> str:
    names = zones.split(ZONES_SEPARATOR)
    if len(names) > 1:
        where = f"regions/{_gce_region(names)}"
    else:
        where = f"zones/{names[0] or _UNSPECIFIED}"
    return f"projects/{_UNSPECIFIED}/{where}/disks/{source.pd_name}"


def _gce_region(zones: list[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise Untranslatable(
                "failed to get region from zones: zone in unexpected format, "
                f"expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        raise Untranslatable(
            "failed to get region from zones: multiple or no regions gotten from zones, "
            f"got: {sorted(regions)}"
        )
    return regions.pop()


def _azure_disk_handle(source: Any, zones: str) -> str:
    if source.kind is not None and source.kind.lower() != "managed":
        raise Untranslatable(f"kind({source.kind}) is not supported in csi migration")
    handle: str = source.disk_uri
    return handle


def _volume_id(source: Any, zones: str) -> str:
    handle: str = source.volume_id
    return handle


def _no_handle(source: Any, zones: str) -> str:
    return ""


IN_TREE_PLUGINS: Final = (
    InTreePlugin(
        "kubernetes.io/aws-ebs",
        "ebs.csi.aws.com",
        "aws_elastic_block_store",
        _ebs_handle,
        "topology.ebs.csi.aws.com/zone",
    ),
    InTreePlugin(
        "kubernetes.io/gce-pd",
        "pd.csi.storage.gke.io",
        "gce_persistent_disk",
        _gce_handle,
        "topology.gke.io/zone",
    ),
    InTreePlugin(
        "kubernetes.io/azure-disk", "disk.csi.azure.com", "azure_disk", _azure_disk_handle
    ),
    InTreePlugin(
        "kubernetes.io/cinder",
        "cinder.csi.openstack.org",
        "cinder",
        _volume_id,
        "topology.cinder.csi.openstack.org/zone",
    ),
    InTreePlugin(
        "kubernetes.io/portworx-volume", "pxd.portworx.com", "portworx_volume", _volume_id
    ),
    InTreePlugin(
        "kubernetes.io/azure-file",
        "file.csi.azure.com",
        "azure_file",
        _no_handle,
        is_replaced=False,
    ),
    InTreePlugin(
        "kubernetes.io/vsphere-volume",
        "csi.vsphere.vmware.com",
        "vsphere_volume",
        _no_handle,
        is_replaced=False,
    ),
)
BY_NAME: Final[Mapping[str, InTreePlugin]] = {plugin.name: plugin for plugin in IN_TREE_PLUGINS}


def in_tree_plugin(spec: Volume | PersistentVolumeSpec) -> InTreePlugin | None:
    """Return the in-tree plugin that a volume belongs to, if any."""
    for plugin in IN_TREE_PLUGINS:
        if getattr(spec, plugin.source) is not None:
            return plugin
    return None


def inline_handle(plugin: InTreePlugin, volume: Volume) -> str:
    """Return the driver's name of an inline volume; raises ``Untranslatable``."""
    return plugin.handle(getattr(volume, plugin.source), "")


def volume_handle(plugin: InTreePlugin, volume: PersistentVolume) -> str:
    """Return the driver's name of a persistent volume; raises ``Untranslatable``.

    kube-scheduler: getVolumeUniqueName.
    """
    labels = volume.metadata.labels
    zones = labels.get(BETA_ZONE, "") or labels.get(ZONE, "")
    return plugin.handle(getattr(volume.spec, plugin.source), zones)


# -- topology -----------------------------------------------------------------------------------


def translated_affinity(
    plugin: InTreePlugin, volume: PersistentVolume
) -> VolumeNodeAffinity | None:
    """Return where a driver's volume can be reached: zones under the driver's own label.

    Raises ``Untranslatable``, like the translation of the whole volume.

    kube-scheduler: tryTranslatePVToCSI, InTreeToCSITranslator.
    """
    volume_handle(plugin, volume)
    affinity = volume.spec.node_affinity
    if not plugin.topology_key:
        return affinity
    terms = list(affinity.required.node_selector_terms) if affinity and affinity.required else []
    zone, region = _topology_labels(terms, volume.metadata.labels)
    if any(wanted.key == zone and wanted.values for wanted in _expressions(terms)):
        terms = _renamed(terms, zone, plugin.topology_key)
    elif zone in volume.metadata.labels:
        zones = {one.strip() for one in volume.metadata.labels[zone].split(ZONES_SEPARATOR)} - {""}
        if zones:
            terms = _narrowed(terms, plugin.topology_key, sorted(zones))
    if region == BETA_REGION:
        terms = _renamed(terms, BETA_REGION, REGION)
    if not terms:
        return affinity
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))


def _topology_labels(terms: list[NodeSelectorTerm], labels: Mapping[str, str]) -> tuple[str, str]:
    """Return a volume's zone and region labels; its affinity has precedence over its labels."""
    for known in ({wanted.key for wanted in _expressions(terms)}, labels):
        if ZONE in known:
            return ZONE, REGION
        if BETA_ZONE in known:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _expressions(terms: list[NodeSelectorTerm]) -> Iterator[NodeSelectorRequirement]:
    for term in terms:
        yield from term.match_expressions


def _renamed(terms: list[NodeSelectorTerm], old: str, new: str) -> list[NodeSelectorTerm]:
    return [
        replace(
            term,
            match_expressions=[
                replace(wanted, key=new) if wanted.key == old else wanted
                for wanted in term.match_expressions
            ],
        )
        for term in terms
    ]


def _narrowed(terms: list[NodeSelectorTerm], key: str, values: list[str]) -> list[NodeSelectorTerm]:
    wanted = NodeSelectorRequirement(key=key, operator="In", values=values)
    return [
        replace(term, match_expressions=[*term.match_expressions, wanted])
        for term in terms or [NodeSelectorTerm()]
    ]
