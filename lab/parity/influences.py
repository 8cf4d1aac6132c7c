"""What a decision hung on: the plugins and the fields without which it had been another one.

That two schedulers agree about a pod says something only about those. Found by deciding the pod
again with one plugin switched off, or with one field taken out of the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Final, TypeAlias

import msgspec

from ksched.api.decoding import decode_pod
from ksched.cache.cache import SchedulerCache
from ksched.framework.runtime.guard import PluginFailure
from ksched.framework.runtime.profiles import Profile
from ksched.scheduling.scheduling_cycle import SchedulingCycle
from lab.decider import Verdict, judge
from lab.parity.manifests import TAINT_KEYS, UNSCHEDULABLE, Json

Removal: TypeAlias = Callable[[Json], None]
"""Takes something out of a pod, or makes it mean nothing, in place."""

# Not NodeName, because a pod that names its node is nobody's to schedule, and not TaintToleration,
# which always keeps pods from the arena's own node: see FIELDS.
PLUGINS: Final = (
    "NodeUnschedulable",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "NodeDeclaredFeatures",
)
VOLUME_PLUGINS: Final = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")

_ALL_PLUGINS = "all-plugins"
_SPREAD, _AFFINITY = "PodTopologySpread", "InterPodAffinity"
_DEFAULT_SPREAD = f"{_SPREAD} by default"
_EXISTING = f"{_AFFINITY} of running pods"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def profiles_to_compare(plugins: Iterable[str]) -> list[Json]:
    """Profiles for the configuration of a scheduler: with all plugins, and without one at a time.

    Preemption is in none of them, because asking must not evict anybody.
    """
    return [
        {
            "schedulerName": name,
            "plugins": {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}, *without]}},
        }
        for name, without in (
            (_ALL_PLUGINS, []),
            *((f"without-{plugin}", [{"name": plugin}]) for plugin in plugins),
        )
    ]


class Influences:
    """Asks a scheduler that has the ``profiles_to_compare`` of these plugins."""

    def __init__(
        self,
        cycle: SchedulingCycle,
        cache: SchedulerCache,
        profiles: Mapping[str, Profile],
        plugins: Sequence[str],
    ) -> None:
        self._cycle, self._cache, self._profiles = cycle, cache, profiles
        self._plugins = tuple(plugins)

    async def on(self, pod: Json, removals: Mapping[str, Removal]) -> set[str]:
        """The plugins, and the names of the removals, that make a difference for a pod.

        The cluster is as the cache has it, and the pod must not be in it.
        """
        verdict = await self._judge(pod, _ALL_PLUGINS)
        found = {
            plugin
            for plugin in self._plugins
            if await self._judge(pod, f"without-{plugin}") != verdict
        }
        for name, remove in removals.items():
            other = deepcopy(pod)
            remove(other)
            if other != pod and await self._judge(other, _ALL_PLUGINS) != verdict:
                found.add(name)
        return found

    async def _judge(self, pod: Json, profile: str) -> object:
        info = self._cache.pod_info(decode_pod(msgspec.json.encode(pod)))
        try:
            verdict = await judge(self._cycle, self._cache, self._profiles[profile], info)
        except PluginFailure as failed:
            return failed.status.message
        return _essence(verdict)


def _essence(verdict: Verdict) -> object:
    """A verdict without what is the same for all nodes: it decides nothing."""
    totals = verdict.totals
    least = min(totals.values(), default=0)
    relative = {node: total - least for node, total in totals.items()}
    return verdict.feasible, verdict.message, relative


def of_others(pod: Json, influences: set[str]) -> set[str]:
    """Names for what spread or affinity did to a pod that has no constraints of that kind."""
    found = set()
    if _SPREAD in influences and not _constraints(pod):
        found.add(_DEFAULT_SPREAD)
    if _AFFINITY in influences and not any(_terms(pod)):
        found.add(_EXISTING)
    return found


# -- what can be taken out of a pod -------------------------------------------------------------


def _constraints(pod: Json) -> list[Json]:
    constraints: list[Json] = pod["spec"].get("topologySpreadConstraints") or []
    return constraints


def _terms(pod: Json) -> Iterator[Json]:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = (pod["spec"].get("affinity") or {}).get(kind) or {}
        yield from rules.get(_REQUIRED) or ()
        yield from (weighted["podAffinityTerm"] for weighted in rules.get(_PREFERRED) or ())


def _without_constraints(when: str) -> Removal:
    def remove(pod: Json) -> None:
        kept = [one for one in _constraints(pod) if one["whenUnsatisfiable"] != when]
        pod["spec"]["topologySpreadConstraints"] = kept

    return remove


def _without_rules(kind: str, when: str) -> Removal:
    def remove(pod: Json) -> None:
        ((pod["spec"].get("affinity") or {}).get(kind) or {}).pop(when, None)

    return remove


def _without_field(parts: Callable[[Json], Iterable[Json]], field: str) -> Removal:
    def remove(pod: Json) -> None:
        for part in parts(pod):
            part.pop(field, None)

    return remove


def _without_keys(parts: Callable[[Json], Iterable[Json]], field: str) -> Removal:
    """The server has written what these keys mean into the selector, too."""

    def remove(pod: Json) -> None:
        for part in parts(pod):
            keys = part.pop(field, None) or ()
            selector = part.get("labelSelector") or {}
            if keys and "matchExpressions" in selector:
                selector["matchExpressions"] = [
                    one for one in selector["matchExpressions"] if one["key"] not in keys
                ]

    return remove


def _tolerating(*effects: str) -> Removal:
    """Take the meaning out of taints, but for the one that NodeUnschedulable cares for, too."""

    def remove(pod: Json) -> None:
        pod["spec"]["tolerations"] = [
            *(pod["spec"].get("tolerations") or ()),
            *(
                {"key": key, "operator": "Exists", "effect": effect}
                for key in TAINT_KEYS
                for effect in effects
                if (key, effect) != (UNSCHEDULABLE, "NoSchedule")
            ),
        ]

    return remove


def _without_node_selector(pod: Json) -> None:
    pod["spec"].pop("nodeSelector", None)


FIELDS: Final[Mapping[str, Removal]] = {
    "TaintToleration": _tolerating("NoSchedule", "NoExecute", "PreferNoSchedule"),
    "TaintToleration PreferNoSchedule": _tolerating("PreferNoSchedule"),
    "NodeAffinity nodeSelector": _without_node_selector,
    "NodeAffinity required": _without_rules("nodeAffinity", _REQUIRED),
    "NodeAffinity preferred": _without_rules("nodeAffinity", _PREFERRED),
    f"{_SPREAD} DoNotSchedule": _without_constraints("DoNotSchedule"),
    f"{_SPREAD} ScheduleAnyway": _without_constraints("ScheduleAnyway"),
    **{
        f"{_SPREAD} {field}": _without_field(_constraints, field)
        for field in ("minDomains", "nodeAffinityPolicy", "nodeTaintsPolicy")
    },
    f"{_SPREAD} matchLabelKeys": _without_keys(_constraints, "matchLabelKeys"),
    f"{_AFFINITY} required": _without_rules("podAffinity", _REQUIRED),
    f"{_AFFINITY} preferred": _without_rules("podAffinity", _PREFERRED),
    f"{_AFFINITY} anti, required": _without_rules("podAntiAffinity", _REQUIRED),
    f"{_AFFINITY} anti, preferred": _without_rules("podAntiAffinity", _PREFERRED),
    **{
        f"{_AFFINITY} {field}": _without_field(_terms, field)
        for field in ("namespaces", "namespaceSelector")
    },
    **{
        f"{_AFFINITY} {field}": _without_keys(_terms, field)
        for field in ("matchLabelKeys", "mismatchLabelKeys")
    },
}
"""What pods of the general suite may lack, by name; see ``Influences.on``."""
EVERYTHING: Final = (*PLUGINS, *FIELDS, _DEFAULT_SPREAD, _EXISTING)
"""What may come up in the general suite."""
