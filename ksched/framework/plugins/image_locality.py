"""ImageLocality: prefers nodes that already have the pod's images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ksched.framework import (
    MAX_NODE_SCORE,
    CycleState,
    NodeRows,
    PodInfo,
    PodTemplate,
    Scope,
    ScoreDependsOn,
    Snapshot,
    template_fact,
)
from ksched.framework.plugins import names
from ksched.tuning import FEW_IMAGES

MIB = 1024 * 1024
MIN_THRESHOLD = 23 * MIB
"""Images with a smaller sum are pulled so quickly that locality does not matter."""
MAX_CONTAINER_THRESHOLD = 1000 * MIB
"""The maximum contribution of one container."""


def _images_epoch(snapshot: Snapshot) -> int:
    """Changes when a node gains or loses an image, and with the number of nodes."""
    return snapshot.table.images_generation


class ImageLocality:
    """Prefers nodes that already have the images of the pod.

    Sizes add up over containers, init containers and image volumes. Each image counts in proportion
    to the share of nodes that have it, so that a pod is not drawn to the only node with its image.
    23 MiB or less score 0; 1000 MiB per container, or more, score 100. No arguments.
    """

    name: ClassVar[str] = names.IMAGE_LOCALITY
    score_depends_on: ClassVar = ScoreDependsOn(
        Scope.NODE, reads_inter_pod_fields=False, epoch=_images_epoch, reads_claim_names=False
    )

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> NDArray[np.int64]:
        containers = _container_count(pod.template)
        known = nodes.table.images
        counted: dict[str, int] = {}
        for image, uses in _images(pod.template).items():
            if image in known:
                spread = known[image].num_nodes / len(nodes.table)
                counted_bytes = int(float(known[image].size_bytes) * spread)
                # Capped at what the highest score needs, so that the sum cannot overflow.
                counted[image] = uses * min(counted_bytes, MAX_CONTAINER_THRESHOLD * containers)
        return _score(_present_bytes(counted, nodes), containers)


def _present_bytes(counted: Mapping[str, int], nodes: NodeRows) -> NDArray[np.int64]:
    """Return the bytes of images present per node.

    kube-scheduler: sumImageScores, scaledImageScore.
    """
    if len(counted) > FEW_IMAGES:
        found = (
            sum(counted[image] for image in info.images.keys() & counted.keys())
            for info in nodes.infos
        )
        return np.fromiter(found, np.int64, len(nodes))
    present = np.zeros(len(nodes), np.int64)
    for image, counted_bytes in counted.items():
        present += counted_bytes * nodes.has_image(image)
    return present


def _score(present_bytes: NDArray[np.int64], containers: int) -> NDArray[np.int64]:
    """kube-scheduler: calculatePriority."""
    ceiling = MAX_CONTAINER_THRESHOLD * containers
    bounded = np.clip(present_bytes, MIN_THRESHOLD, ceiling)
    return MAX_NODE_SCORE * (bounded - MIN_THRESHOLD) // (ceiling - MIN_THRESHOLD)


@template_fact
def _images(template: PodTemplate) -> Mapping[str, int]:
    """Return the images of a pod, and how often it uses each."""
    spec = template.spec
    containers = [container.image for container in (*spec.init_containers, *spec.containers)]
    volumes = [volume.image.reference for volume in spec.volumes if volume.image is not None]
    return Counter(_with_tag(image) for image in (*containers, *volumes))


def _container_count(template: PodTemplate) -> int:
    return len(template.spec.init_containers) + len(template.spec.containers)


def _with_tag(image: str) -> str:
    """Add the default tag as the container runtime does; a colon may belong to a port.

    kube-scheduler: normalizedImageName.
    """
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
