"""Serialization of a configuration: every default spelled out, keys sorted, loadable again.

``configz`` is served over HTTP and redacts secrets; the file of ``--write-config-to`` is read by a
scheduler again and contains them, so only its owner may read it.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import yaml

from ksched.configuration.loading import KIND
from ksched.configuration.model import SchedulerConfiguration
from ksched.configuration.strict_model import API_VERSION
from ksched.configuration.yaml_reading import plain_value
from ksched.errors import ConfigError
from ksched.redaction import redact


def configz(configuration: SchedulerConfiguration) -> dict[str, Any]:
    """Return the versioned object, as ``/configz`` serves it under ``componentconfig``, redacted.

    Readers of the configuration need not be able to impersonate the scheduler.
    """
    content: dict[str, Any] = redact(versioned(configuration))
    return content


def versioned(configuration: SchedulerConfiguration) -> dict[str, Any]:
    """Return the versioned object with its secrets, for a scheduler or another process of ours."""
    content = configuration.model_dump(mode="json", exclude_none=True)
    if not content["extenders"]:
        del content["extenders"]
    return {"apiVersion": API_VERSION, "kind": KIND, **content}


def configuration_hash(configuration: SchedulerConfiguration) -> str:
    """Tells configurations apart, as far as ``configz`` shows them."""
    text = json.dumps(configz(configuration), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def dump_config(configuration: SchedulerConfiguration) -> str:
    """The configuration as YAML for ``--write-config-to``."""
    return yaml.dump(
        versioned(configuration),
        Dumper=_Dumper,
        sort_keys=True,
        default_flow_style=False,
        allow_unicode=True,
        width=1000,
    )


def write_config(configuration: SchedulerConfiguration, path: str) -> None:
    """Write the configuration to a file; raise ``ConfigError`` if that cannot be done."""
    try:
        with open(path, "w", encoding="utf-8", opener=_for_its_owner) as file:
            file.write(dump_config(configuration))
    except OSError as error:
        problem = f"--write-config-to: cannot write {path}: {error.strerror}"
        raise ConfigError([problem]) from error


def _for_its_owner(path: str, flags: int) -> int:
    """Open a file for its owner only; an existing file keeps its mode."""
    return os.open(path, flags, 0o600)


class _Dumper(yaml.SafeDumper):
    """Writes shared values twice, because anchors are hard to read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        # PyYAML would leave text plain that Kubernetes reads as another type: y, 1e3, 0o7.
        style = None if plain_value(text) == text else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _Dumper.represent_text)
