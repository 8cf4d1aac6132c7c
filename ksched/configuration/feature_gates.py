"""The feature gates that kube-scheduler v1.36 reads.

ksched behaves as with the default gates, except for the gates in ``HONOURED``. The others are
accepted so that existing command lines keep working; one that requests another behaviour gets a
note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple


class Gate(NamedTuple):
    """State of a gate in v1.36; a locked one cannot be changed."""

    default: bool
    locked: bool = False


_ON: Final = Gate(True)
_OFF: Final = Gate(False)
_LOCKED: Final = Gate(True, locked=True)

FEATURE_GATES: Final[Mapping[str, Gate]] = {
    "AllAlpha": _OFF,
    "AllBeta": _OFF,
    "ClearingNominatedNodeNameAfterBinding": _ON,
    "ComponentFlagz": _ON,
    "ComponentStatusz": _ON,
    "CoordinatedLeaderElection": _OFF,
    "DRAAdminAccess": _LOCKED,
    "DRAConsumableCapacity": _ON,
    "DRADeviceBindingConditions": _ON,
    "DRADeviceTaintRules": _OFF,
    "DRADeviceTaints": _ON,
    "DRAExtendedResource": _ON,
    "DRAListTypeAttributes": _OFF,
    "DRANodeAllocatableResources": _OFF,
    "DRAPartitionableDevices": _ON,
    "DRAPrioritizedList": _ON,
    "DRAResourceClaimDeviceStatus": _ON,
    "DRASchedulerFilterTimeout": _ON,
    "DRAWorkloadResourceClaims": _OFF,
    "DynamicResourceAllocation": _LOCKED,
    "GangScheduling": _OFF,
    "GenericWorkload": _OFF,
    "InPlacePodLevelResourcesVerticalScaling": _ON,
    "InPlacePodVerticalScaling": _LOCKED,
    "MatchLabelKeysInPodAffinity": _LOCKED,
    "MatchLabelKeysInPodTopologySpread": _ON,
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": _ON,
    "NodeDeclaredFeatures": _ON,
    "NodeInclusionPolicyInPodTopologySpread": _LOCKED,
    "NominatedNodeNameForExpectation": _ON,
    "OpportunisticBatching": _ON,
    "PodLevelResources": _ON,
    "SchedulerAsyncAPICalls": _OFF,
    "SchedulerAsyncPreemption": _ON,
    "SchedulerPopFromBackoffQ": _ON,
    "SchedulerQueueingHints": _LOCKED,
    "SidecarContainers": _LOCKED,
    "StorageCapacityScoring": _OFF,
    "TaintTolerationComparisonOperators": _OFF,
    "TopologyAwareWorkloadScheduling": _OFF,
    "VolumeAttributesClass": _LOCKED,
    "VolumeLimitScaling": _OFF,
    "WorkloadAwarePreemption": _OFF,
}

_ABSENT: Final = ("OpportunisticBatching",)
"""Prefixes of gates that are on by default in kube-scheduler for what ksched does not have."""

COMPONENT_FLAGZ: Final = "ComponentFlagz"
COMPONENT_STATUSZ: Final = "ComponentStatusz"

HONOURED: Final = frozenset(
    {
        "DRADeviceTaintRules",
        "GangScheduling",
        "GenericWorkload",
        COMPONENT_FLAGZ,
        COMPONENT_STATUSZ,
    }
)
"""Gates that change what ksched does: its plugins (``gated_plugins``) and its endpoints."""

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def parse_bool(text: str) -> bool:
    """Read a boolean as Go's flags do; raise ``ValueError`` otherwise."""
    if text not in _TRUE | _FALSE:
        raise ValueError(f"invalid boolean value {text!r}")
    return text in _TRUE


def parse_feature_gates(text: str) -> dict[str, bool]:
    """Read ``A=true,B=false``; raise ``ValueError`` for a gate that does not exist or is locked."""
    gates: dict[str, bool] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for {name}")
        gate = FEATURE_GATES.get(name)
        if gate is None:
            raise ValueError(f"unrecognized feature gate: {name}")
        gates[name] = parse_bool(value)
        if gate.locked and gates[name] != gate.default:
            locked_to = str(gate.default).lower()
            raise ValueError(
                f"cannot set feature gate {name} to {value}, feature is locked to {locked_to}"
            )
    return gates


def is_enabled(gates: Mapping[str, bool], name: str) -> bool:
    """Whether a gate is on, given or by default."""
    return gates.get(name, FEATURE_GATES[name].default)


def gate_notes(gates: Mapping[str, bool]) -> Iterable[str]:
    """Notes for gates that are set to a behaviour ksched does not have."""
    for name, value in sorted(gates.items()):
        default = FEATURE_GATES[name].default
        if name in HONOURED:
            continue
        if name.startswith(_ABSENT):
            if value:
                yield f"feature gate {name} has no effect, ksched does not have this feature"
        elif value != default:
            yield (
                f"feature gate {name}={str(value).lower()} has no effect, "
                f"ksched behaves as {name}={str(default).lower()}"
            )
