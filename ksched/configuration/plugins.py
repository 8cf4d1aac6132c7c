"""The plugin sets of a profile, by extension point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, SerializerFunctionWrapHandler, create_model, model_serializer

from ksched.configuration.extension_points import EXTENSION_POINTS
from ksched.configuration.strict_model import Int32, Listed, StrictModel

ALL: Final = "*"
MULTI_POINT: Final = "multiPoint"
"""Stands for every extension point that a plugin implements."""


class Plugin(StrictModel):
    """A plugin enabled or disabled at an extension point."""

    name: str = ""
    """The plugin's registered name; in ``disabled`` lists ``*`` stands for all."""
    weight: Int32 = 0
    """Factor of the plugin's scores. Only used by Score; 0 means 1, so that plain lists of names
    give every plugin equal weight."""


class PluginSet(StrictModel):
    """Plugins enabled and disabled at one extension point, in calling order."""

    enabled: Listed[Plugin] = ()
    """Plugins called at this point, after or instead of the defaults."""
    disabled: Listed[Plugin] = ()
    """Default plugins not called at this point; ``*`` for none of them."""

    @model_serializer(mode="wrap")
    def _omit_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: value for key, value in handler(self).items() if value}


class _PluginSets(StrictModel):
    def at(self, point: str) -> PluginSet:
        """The set of an extension point, or of ``multiPoint``, by its camelCase name."""
        plugin_set = getattr(self, _FIELDS[point])
        assert isinstance(plugin_set, PluginSet)
        return plugin_set

    def items(self) -> Iterator[tuple[str, PluginSet]]:
        """Points by camelCase name in the order of a pod's way, then ``multiPoint``.

        kube-scheduler: ListPlugins.
        """
        return ((point, self.at(point)) for point in _FIELDS)


_FIELDS: Final[Mapping[str, str]] = {
    **{point.key: point.field for point in EXTENSION_POINTS},
    MULTI_POINT: "multi_point",
}
_ABOUT: Final[Mapping[str, str]] = {
    **{point.field: point.about for point in EXTENSION_POINTS},
    "multi_point": "Plugins enabled at every extension point that they implement.",
}

if TYPE_CHECKING:

    class Plugins(_PluginSets):
        """A plugin set for every extension point; defaults live in ``multi_point`` only."""

        def __init__(self, **sets: PluginSet) -> None: ...

        def __getattr__(self, point: str) -> PluginSet: ...

else:
    Plugins = create_model(
        "Plugins",
        __base__=_PluginSets,
        __module__=__name__,
        __doc__="A plugin set for every extension point; defaults live in ``multi_point`` only.",
        **{
            field: (PluginSet, Field(PluginSet(), description=about))
            for field, about in _ABOUT.items()
        },
    )
