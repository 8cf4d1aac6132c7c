"""Conversion of configuration files of retired versions to v1.

The meaning of an old file is preserved where v1 can express it: separate scoring plugins became
strategies of NodeResourcesFit, and the old version's defaults are spelled out where v1's differ.
What no longer has a meaning is dropped with a warning; a removed *filter* is an error, because
without it pods would be placed on wrong nodes.

The data are not validated yet: whatever does not have the expected shape is left for decoding to
report.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ksched.configuration.field_errors import invalid
from ksched.configuration.strict_model import API_VERSION, GROUP

Container = TypeVar("Container", dict[str, Any], list[Any])

V1BETA1: Final = f"{GROUP}/v1beta1"
V1BETA2: Final = f"{GROUP}/v1beta2"
V1BETA3: Final = f"{GROUP}/v1beta3"
OLD_VERSIONS: Final = (V1BETA3, V1BETA2, V1BETA1)

# v1beta3 raised these to v1's 3, 2 and 2.
_OLD_WEIGHTS: Final = ("TaintToleration", "NodeAffinity", "InterPodAffinity")

_FIT: Final = "NodeResourcesFit"
_LEAST: Final = "NodeResourcesLeastAllocated"
_STRATEGIES: Final = {
    _LEAST: "LeastAllocated",
    "NodeResourcesMostAllocated": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
_REMOVED_SCORES: Final = {
    "NodePreferAvoidPods": "nodes are no longer annotated with the pods they avoid; use taints",
}
_REMOVED_FILTERS: Final = {
    "NodeLabel": "was removed in v1beta2, use addedAffinity of NodeAffinity",
    "ServiceAffinity": "was removed in v1beta2, use inter-pod affinity",
}


@dataclass
class Converted:
    """The content of a v1 file, with warnings and problems of the conversion."""

    content: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def convert(version: str, content: dict[str, Any]) -> Converted:
    """Rewrite the content of an old version's file as v1."""
    converted = Converted(deepcopy(content))
    data = converted.content
    if version in (V1BETA1, V1BETA2):
        for name in ("healthzBindAddress", "metricsBindAddress"):
            if data.pop(name, None) is not None:
                converted.warnings.append(
                    f"{name}: has no effect, use --bind-address and --secure-port"
                )
        if data.get("profiles") in (None, []):
            data["profiles"] = [{}]
    no_preemption = version == V1BETA1 and data.pop("disablePreemption", None) is True
    for path, profile in _objects(data, "profiles"):
        _rewrite_args_version(version, profile)
        if version == V1BETA3:
            continue
        old = _Profile(path, profile, converted)
        old.convert(version)
        if no_preemption:
            old.at("postFilter", "disabled").append({"name": "DefaultPreemption"})
    for path, extender in _objects(data, "extenders"):
        _convert_extender(path, extender, converted)
    return converted


def _objects(data: Any, key: str, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a list with their paths, if it is a list."""
    items = data.get(key) if isinstance(data, dict) else None
    for index, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            yield f"{path}{key}[{index}]", item


def _rewrite_args_version(version: str, profile: dict[str, Any]) -> None:
    for _, config in _objects(profile, "pluginConfig"):
        args = config.get("args")
        if isinstance(args, dict) and args.get("apiVersion") == version:
            args["apiVersion"] = API_VERSION


def _convert_extender(path: str, extender: dict[str, Any], converted: Converted) -> None:
    # The first v1beta1 shared its extender type with the Policy API; the published samples kept
    # its spelling and nanoseconds.
    if "enableHttps" in extender:
        extender.setdefault("enableHTTPS", extender.pop("enableHttps"))
    timeout = extender.get("httpTimeout")
    if isinstance(timeout, int) and not isinstance(timeout, bool):
        extender["httpTimeout"] = f"{timeout}ns"
    if extender.get("prioritizeVerb") and "weight" not in extender:
        extender["weight"] = 1
        converted.warnings.append(f"{path}.weight: not set, using 1")


class _Profile:
    """The conversion of one profile of v1beta1 or v1beta2."""

    def __init__(self, path: str, profile: dict[str, Any], converted: Converted) -> None:
        self._path, self._profile, self._converted = path, profile, converted
        self._plugins: dict[str, Any] = _ensure(profile, "plugins", dict)

    def convert(self, version: str) -> None:
        if self._plugins.pop("unreserve", None) is not None:
            self._warn("plugins.unreserve", "is part of reserve")
        self._drop_removed()
        self._convert_strategies(version)
        self._keep_old_weights()
        if version == V1BETA1:
            self._keep_list_defaulting()

    def _warn(self, path: str, text: str) -> None:
        self._converted.warnings.append(f"{self._path}.{path}: {text}")

    def _lists(self, which: str) -> Iterator[tuple[str, list[Any]]]:
        """The ``enabled`` or ``disabled`` lists of all points, with their paths."""
        for point, plugin_set in self._plugins.items():
            if isinstance(plugin_set, dict) and isinstance(plugin_set.get(which), list):
                yield f"plugins.{point}.{which}", plugin_set[which]

    def _drop_removed(self) -> None:
        for path, enabled in self._lists("enabled"):
            for index, plugin in enumerate(enabled):
                name = _name(plugin)
                if name in _REMOVED_FILTERS:
                    where = f"{self._path}.{path}[{index}]"
                    self._converted.problems.append(invalid(where, name, _REMOVED_FILTERS[name]))
                elif name in _REMOVED_SCORES:
                    self._warn(f"{path}[{index}]", f"{name} is ignored: {_REMOVED_SCORES[name]}")
        removed = _REMOVED_SCORES.keys() | _REMOVED_FILTERS.keys()
        for which in ("enabled", "disabled"):
            for _, plugins in self._lists(which):
                plugins[:] = [plugin for plugin in plugins if _name(plugin) not in removed]
        configs = self._profile.get("pluginConfig")
        if isinstance(configs, list):
            configs[:] = [config for config in configs if _name(config) not in removed]

    # -- scoring strategies -----------------------------------------------------------------

    def _convert_strategies(self, version: str) -> None:
        enabled = self._take("enabled")
        disabled = [_name(plugin) for plugin in self._take("disabled")]
        args = self._take_args()
        if len(enabled) > 1:
            names = " and ".join(str(_name(plugin)) for plugin in enabled)
            problem = f"NodeResourcesFit has one scoring strategy, got {names}"
            self._converted.problems.append(f"{self._path}.plugins.score.enabled: {problem}")
            return
        if not enabled and version == V1BETA1 and not self._disables_all_scores():
            # LeastAllocated was a default of v1beta1, as the strategy is today.
            if _LEAST in disabled:
                self.at("score", "disabled").append({"name": _FIT})
                return
            enabled = [{"name": _LEAST}]
        if not enabled:
            return
        plugin = enabled[0]
        name = _name(plugin)
        assert name is not None
        replaces_default = _LEAST not in (name, *disabled) and not self._disables_all_scores()
        if version == V1BETA1 and replaces_default:
            self._warn("plugins.score.enabled", f"{name} replaces the default {_LEAST}")
        if plugin.get("weight") is not None or self._disables_all_scores():
            self.at("score", "enabled").append({**plugin, "name": _FIT})
        self._set_strategy(name, args)

    def _disables_all_scores(self) -> bool:
        return any(
            _name(plugin) == "*"
            for path, disabled in self._lists("disabled")
            if path == "plugins.score.disabled"
            for plugin in disabled
        )

    def _take(self, which: str) -> list[dict[str, Any]]:
        """Remove the old scoring plugins from all lists and return those of Score."""
        taken = []
        for path, plugins in self._lists(which):
            if path == f"plugins.score.{which}":
                taken = [plugin for plugin in plugins if _name(plugin) in _STRATEGIES]
            plugins[:] = [plugin for plugin in plugins if _name(plugin) not in _STRATEGIES]
        return taken

    def _take_args(self) -> dict[str, dict[str, Any]]:
        configs = self._profile.get("pluginConfig")
        if not isinstance(configs, list):
            return {}
        taken = {}
        for config in configs:
            name = _name(config)
            if name in _STRATEGIES and isinstance(config.get("args"), dict):
                taken[name] = config["args"]
        configs[:] = [config for config in configs if _name(config) not in _STRATEGIES]
        return taken

    def _set_strategy(self, name: str, all_args: dict[str, dict[str, Any]]) -> None:
        for unused in all_args.keys() - {name}:
            self._warn("pluginConfig", f"args of {unused} are ignored: it does not score")
        args = all_args.get(name, {})
        strategy: dict[str, Any] = {"type": _STRATEGIES[name]}
        # Fields that the old type did not have are left for decoding to reject.
        for key in args.keys() - {"apiVersion", "kind", "shape"}:
            strategy[key] = args[key]
        if "shape" in args:
            strategy["requestedToCapacityRatio"] = {"shape": args["shape"]}
        if strategy == {"type": _STRATEGIES[_LEAST]}:
            return
        configs = _ensure(self._profile, "pluginConfig", list)
        fit = next((config for config in configs if _name(config) == _FIT), None)
        if fit is None:
            fit = {"name": _FIT}
            configs.append(fit)
        _ensure(fit, "args", dict).setdefault("scoringStrategy", strategy)

    # -- defaults of the old versions -----------------------------------------------------------

    def _keep_old_weights(self) -> None:
        multi_point = self.at("multiPoint", "enabled")
        multi_point += [{"name": name, "weight": 1} for name in _OLD_WEIGHTS]

    def _keep_list_defaulting(self) -> None:
        for _, config in _objects(self._profile, "pluginConfig"):
            args = config.get("args")
            if config.get("name") != "PodTopologySpread" or not isinstance(args, dict):
                continue
            if args.get("defaultConstraints"):
                args.setdefault("defaultingType", "List")

    def at(self, point: str, which: str) -> list[Any]:
        """Return the ``enabled`` or ``disabled`` list of a point, created if absent."""
        return _ensure(_ensure(self._plugins, point, dict), which, list)


def _ensure(data: dict[str, Any], key: str, kind: type[Container]) -> Container:
    """Return the value of a key, created if absent; a dummy if the file has another type."""
    if data.get(key) is None:
        data[key] = kind()
    value = data[key]
    return value if isinstance(value, kind) else kind()


def _name(item: Any) -> str | None:
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else None
