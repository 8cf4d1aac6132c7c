"""Arguments of plugins outside the tree that declare a pydantic model for them.

The raw data of the file are checked against the model when a profile is built, and every problem
carries the path of its field. What the model leaves open is strict: a field that it does not have
is refused, unless its ``model_config`` says what to do with such.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from ksched.configuration.field_errors import describe
from ksched.configuration.model import Profile
from ksched.errors import ConfigError

_TYPE_FIELDS = ("apiVersion", "kind")


def declared_args(model: object, profile: Profile, name: str) -> BaseModel:
    """The arguments of the plugin ``name`` as its model; ``ConfigError`` with all problems.

    Without arguments the plugin gets the model's defaults. ``apiVersion`` and ``kind``, which
    kube-scheduler's plugins need, are no arguments unless the model has them.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise ConfigError([f"args_model must be a pydantic model, got {model!r:.100}"])
    raw: Any = None
    location: tuple[str | int, ...] = ("args",)
    for index, config in enumerate(profile.plugin_config):
        if config.name == name:
            raw, location = config.args, ("pluginConfig", index, "args")
            break
    if isinstance(raw, Mapping):
        own = model.model_fields
        raw = {key: raw[key] for key in raw if key in own or key not in _TYPE_FIELDS}
    says_itself = "extra" in model.model_config
    try:
        return model.model_validate(
            {} if raw is None else raw, extra=None if says_itself else "forbid"
        )
    except ValidationError as error:
        raise ConfigError([text for _, text in describe(error, location)]) from None
