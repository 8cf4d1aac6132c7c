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
    stage: str
    """ALPHA, BETA, or empty for what is generally available."""
    locked: bool = False


_ALPHA: Final = Gate(False, "ALPHA")
_BETA: Final = Gate(True, "BETA")
_BETA_OFF: Final = Gate(False, "BETA")
_GA: Final = Gate(True, "")
_LOCKED: Final = Gate(True, "", locked=True)

FEATURE_GATES: Final[Mapping[str, Gate]] = {
    "AllAlpha": _ALPHA,
    "AllBeta": _BETA_OFF,
    "ClearingNominatedNodeNameAfterBinding": _BETA,
    "ComponentFlagz": _BETA,
    "ComponentStatusz": _BETA,
    "CoordinatedLeaderElection": _BETA_OFF,
    "DRAAdminAccess": _LOCKED,
    "DRAConsumableCapacity": _BETA,
    "DRADeviceBindingConditions": _BETA,
    "DRADeviceTaintRules": _BETA_OFF,
    "DRADeviceTaints": _BETA,
    "DRAExtendedResource": _BETA,
    "DRAListTypeAttributes": _ALPHA,
    "DRANodeAllocatableResources": _ALPHA,
    "DRAPartitionableDevices": _BETA,
    "DRAPrioritizedList": _GA,
    "DRAResourceClaimDeviceStatus": _BETA,
    "DRASchedulerFilterTimeout": _BETA,
    "DRAWorkloadResourceClaims": _ALPHA,
    "DynamicResourceAllocation": _LOCKED,
    "GangScheduling": _ALPHA,
    "GenericWorkload": _ALPHA,
    "InPlacePodLevelResourcesVerticalScaling": _BETA,
    "InPlacePodVerticalScaling": _LOCKED,
    "MatchLabelKeysInPodAffinity": _LOCKED,
    "MatchLabelKeysInPodTopologySpread": _BETA,
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": _BETA,
    "NodeDeclaredFeatures": _BETA,
    "NodeInclusionPolicyInPodTopologySpread": _LOCKED,
    "NominatedNodeNameForExpectation": _BETA,
    "OpportunisticBatching": _BETA,
    "PodLevelResources": _BETA,
    "SchedulerAsyncAPICalls": _BETA_OFF,
    "SchedulerAsyncPreemption": _BETA,
    "SchedulerPopFromBackoffQ": _BETA,
    "SchedulerQueueingHints": _LOCKED,
    "SidecarContainers": _LOCKED,
    "StorageCapacityScoring": _ALPHA,
    "TaintTolerationComparisonOperators": _ALPHA,
    "TopologyAwareWorkloadScheduling": _ALPHA,
    "VolumeAttributesClass": _LOCKED,
    "VolumeLimitScaling": _ALPHA,
    "WorkloadAwarePreemption": _ALPHA,
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


def behaviours(gates: Mapping[str, bool]) -> dict[str, bool]:
    """Whether ksched behaves as with each gate on, whatever is given for those it ignores."""
    return {
        name: is_enabled(gates, name)
        if name in HONOURED
        else gate.default and not name.startswith(_ABSENT)
        for name, gate in FEATURE_GATES.items()
    }


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
