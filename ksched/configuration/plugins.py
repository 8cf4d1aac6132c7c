"""Which plugins run at which extension point, as a profile spells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import SerializerFunctionWrapHandler, model_serializer

from ksched.configuration.strict_model import Int32, Listed, StrictModel

ALL: Final = "*"


class Plugin(StrictModel):
    """A plugin enabled or disabled at an extension point."""

    name: str = ""
    """The plugin's registered name; in ``disabled`` lists ``*`` stands for all."""
    weight: Int32 = 0
    """Factor of the plugin's scores. Only used by Score; 0 means 1, so that plain lists of names
    give every plugin the same say."""


class PluginSet(StrictModel):
    """What is switched on and off at one extension point, in calling order."""

    enabled: Listed[Plugin] = ()
    """Plugins called at this point, after or instead of the defaults."""
    disabled: Listed[Plugin] = ()
    """Default plugins not called at this point; ``*`` for none of them."""

    @model_serializer(mode="wrap")
    def _omit_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if value}


class Plugins(StrictModel):
    """A plugin set for every extension point; defaults live in ``multi_point`` only."""

    pre_enqueue: PluginSet = PluginSet()
    """Called before a pod may enter the active queue."""
    queue_sort: PluginSet = PluginSet()
    """Orders the active queue; exactly one, the same in all profiles (there is one queue)."""
    pre_filter: PluginSet = PluginSet()
    """Called once per attempt before nodes are filtered."""
    filter: PluginSet = PluginSet()
    """Rules out nodes that cannot run the pod."""
    post_filter: PluginSet = PluginSet()
    """Called when no node is left: preemption."""
    pre_score: PluginSet = PluginSet()
    """Called once per attempt before nodes are scored."""
    score: PluginSet = PluginSet()
    """Ranks the nodes that are left."""
    reserve: PluginSet = PluginSet()
    """Claims and releases resources that plugins keep account of."""
    permit: PluginSet = PluginSet()
    """Approves, rejects or delays a binding."""
    pre_bind: PluginSet = PluginSet()
    """Called before a pod is bound."""
    bind: PluginSet = PluginSet()
    """Binds the pod; the first plugin that does not skip it has done it."""
    post_bind: PluginSet = PluginSet()
    """Called after a pod is bound."""
    multi_point: PluginSet = PluginSet()
    """Plugins enabled at every extension point that they implement."""
    placement_generate: PluginSet = PluginSet()
    """Proposes placements for pod groups."""
    placement_score: PluginSet = PluginSet()
    """Ranks placements of pod groups."""

    def at(self, point: str) -> PluginSet:
        """The set of an extension point by its camelCase name."""
        plugin_set = getattr(self, _ATTRIBUTES[point])
        assert isinstance(plugin_set, PluginSet)
        return plugin_set

    def items(self) -> Iterator[tuple[str, PluginSet]]:
        """Points by camelCase name in declaration order, ``multiPoint`` included."""
        return ((point, self.at(point)) for point in _ATTRIBUTES)


_ATTRIBUTES: Final[Mapping[str, str]] = {
    field.alias or name: name for name, field in Plugins.model_fields.items()
}

# In the order in which kube-scheduler fills them, which decides the point named in an error about
# a multiPoint plugin (pkg/scheduler/framework/runtime/framework.go: getExtensionPoints, v1.36).
EXTENSION_POINTS: Final = (
    "preFilter",
    "filter",
    "postFilter",
    "reserve",
    "preScore",
    "score",
    "preBind",
    "bind",
    "postBind",
    "permit",
    "preEnqueue",
    "queueSort",
    "placementGenerate",
    "placementScore",
)


def interface_name(point: str) -> str:
    """The plugin interface of a point in error messages: PreFilterPlugin for ``preFilter``."""
    return f"{point[0].upper()}{point[1:]}Plugin"
