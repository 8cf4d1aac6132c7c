"""What columnar plugins read beside ``NodeRows``: the table behind it and what of it is shared.

A column is one NumPy array over all rows of ``NodeTable``, in the order of its ``infos``; amounts
are by resource, numbered by ``ResourceAxis``. A dry run (preemption, nominated pods) is a
``DryRunTable`` of a few copied rows, whose columns ``amounts_of`` names. Everything here is to be
read, not written. Does not belong here: counters of pods (``ksched.framework.counters``).
"""

from ksched.cache.dry_run_table import POD_COUNT, REQUESTED, DryRunTable, amounts_of
from ksched.cache.labels import NodeLabels
from ksched.cache.node_order import REGION_KEYS, ZONE_KEYS, zone_of
from ksched.cache.node_table import Ints, NodeTable
from ksched.cache.resource_axis import ResourceAxis

__all__ = [
    "POD_COUNT",
    "REGION_KEYS",
    "REQUESTED",
    "ZONE_KEYS",
    "DryRunTable",
    "Ints",
    "NodeLabels",
    "NodeTable",
    "ResourceAxis",
    "amounts_of",
    "zone_of",
]
