"""A configuration written out: every default spelled, keys sorted, readable by ``loading``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from ksched.configuration.loading import KIND
from ksched.configuration.model import SchedulerConfiguration
from ksched.configuration.strict_model import API_VERSION
from ksched.configuration.yaml_reading import plain_value
from ksched.errors import ConfigError

REDACTED: Final = "--- REDACTED ---"


def configz(configuration: SchedulerConfiguration) -> dict[str, Any]:
    """The versioned object, as ``/configz`` serves it under ``componentconfig``: without keys.

    Whoever may ask for the configuration need not be able to impersonate the scheduler.
    """
    content = _versioned(configuration)
    for extender in content.get("extenders", ()):
        if extender.get("tlsConfig", {}).get("keyData"):
            extender["tlsConfig"]["keyData"] = REDACTED
    return content


def _versioned(configuration: SchedulerConfiguration) -> dict[str, Any]:
    content = configuration.model_dump(mode="json", exclude_none=True)
    if not content["extenders"]:
        del content["extenders"]
    return {"apiVersion": API_VERSION, "kind": KIND, **content}


def dump_config(configuration: SchedulerConfiguration) -> str:
    """The configuration as YAML for ``--write-config-to``."""
    return yaml.dump(
        _versioned(configuration),
        Dumper=_Dumper,
        sort_keys=True,
        default_flow_style=False,
        allow_unicode=True,
        width=1000,
    )


def write_config(configuration: SchedulerConfiguration, path: str) -> None:
    """Write the configuration to a file; raise ``ConfigError`` if that cannot be done."""
    try:
        Path(path).write_text(dump_config(configuration), encoding="utf-8")
    except OSError as error:
        problem = f"--write-config-to: cannot write {path}: {error.strerror}"
        raise ConfigError([problem]) from error


class _Dumper(yaml.SafeDumper):
    """Writes shared values twice: anchors help nobody who reads a configuration."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        # PyYAML would leave text plain that Kubernetes reads as something else: y, 1e3, 0o7.
        style = None if plain_value(text) == text else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _Dumper.represent_text)
