"""The plugin to be checked: where it comes from, its arguments, and a profile that enables it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ksched.configuration.yaml_reading import read_yaml
from ksched.errors import ConfigError
from ksched.framework.handle import Handle, PluginFactory
from ksched.framework.plugins.in_tree import IN_TREE
from ksched.framework.plugins.names import DEFAULT_BINDER
from ksched.framework.runtime.registry import installed
from ksched.framework.untrusted_values import is_interrupt, safe_error_text

Args = Mapping[str, Any] | None


class Target(Struct, frozen=True):
    """A plugin by its name; ``factory`` is None for one that the registry has already."""

    name: str
    shown: str
    """How the caller named it."""
    factory: PluginFactory | None
    args: Args = None
    options: str = ""
    """What a command line must say beside the name."""

    def with_args(self, args: Args, path: str) -> Target:
        return replace(self, args=args, options=f" --args {path}")

    @property
    def plugins(self) -> dict[str, PluginFactory]:
        return {} if self.factory is None else {self.name: self.factory}

    def config(self) -> dict[str, Any]:
        """A configuration whose only profile enables the plugin where it has a say."""
        enabled = [{"name": self.name}]
        plugins: dict[str, Any] = {"multiPoint": {"enabled": enabled}}
        if hasattr(self.factory, "sort_key"):
            plugins["queueSort"] = {"enabled": enabled, "disabled": [{"name": "*"}]}
        if hasattr(self.factory, "bind"):
            binders = [*enabled, {"name": DEFAULT_BINDER}]
            plugins["bind"] = {"enabled": binders, "disabled": [{"name": "*"}]}
        profile: dict[str, Any] = {"plugins": plugins}
        if self.args is not None:
            profile["pluginConfig"] = [{"name": self.name, "args": dict(self.args)}]
        return {"profiles": [profile]}


def find_target(named: object, args: Args = None) -> Target:
    """A plugin by ``module:Class``, by the name of a registered one, a factory, or an instance.

    Raises ``ConfigError`` if there is no such plugin.
    """
    if isinstance(named, str):
        if ":" in named:
            return _of_factory(_imported(named), named, args)
        if named in IN_TREE or named in installed():
            return Target(named, named, None, args)
        text = "wanted module:Class, or the name of an in-tree or installed plugin"
        raise ConfigError([f'"{named}": no such plugin; {text}'])
    shown = f"{type(named).__module__}:{type(named).__qualname__}"
    if isinstance(named, type):
        shown = f"{named.__module__}:{named.__qualname__}"
    return _of_factory(named, shown, args)


def _of_factory(named: Any, shown: str, args: Args) -> Target:
    name = getattr(named, "name", None)
    if not isinstance(name, str):
        raise ConfigError([f"{shown}: has no name: give the class, or the name of the entry point"])
    if name in IN_TREE:
        raise ConfigError([f'{shown}: its name "{name}" is that of an in-tree plugin'])
    factory: PluginFactory = named if callable(named) else _factory_of(named)
    return Target(name, shown, factory, args)


def _factory_of(plugin: Any) -> PluginFactory:
    def give(args: Any, handle: Handle) -> Any:
        return plugin

    return give


def _imported(path: str) -> Any:
    module_name, _, attribute = path.partition(":")
    # As ``python -m`` does: the author is in the folder of the plugin.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
        for name in attribute.split("."):
            found = getattr(found, name)
    except BaseException as problem:
        if is_interrupt(problem):
            raise
        raise ConfigError([f"{path}: cannot be imported: {safe_error_text(problem)}"]) from problem
    return found


def read_args(path: str, name: str) -> Args:
    """Arguments from a file: those alone, or a whole configuration whose profile has them."""
    try:
        data = read_yaml(Path(path).read_text()).data
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError([f"{path}: {problem}"]) from problem
    if isinstance(data, dict) and data.get("kind") == "KubeSchedulerConfiguration":
        profiles = data.get("profiles") or []
        configured = [one for profile in profiles for one in profile.get("pluginConfig") or []]
        data = next((one.get("args") for one in configured if one.get("name") == name), None)
    if data is not None and not isinstance(data, dict):
        raise ConfigError([f"{path}: got {type(data).__name__}, wanted a mapping of arguments"])
    return data
