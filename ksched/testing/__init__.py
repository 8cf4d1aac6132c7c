"""Test support for ksched and for plugin authors: a whole cluster inside your own pytest.

Does not belong here: anything the scheduler needs to run. Nothing outside the tests and the command
line imports this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ksched.framework.runtime.declaration_checks import FalseDeclaration
    from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
    from ksched.testing.checkers import Checkers
    from ksched.testing.conformance import NonConforming, check_plugin
    from ksched.testing.custom_resources import custom_resource_definition
    from ksched.testing.fake_plugins import NEVER, After, Call, FakePlugin, PermitGate
    from ksched.testing.harness import Cluster, PodEvent, cluster
    from ksched.testing.journals import replay_journal

__all__ = [
    "NEVER",
    "After",
    "Call",
    "Checkers",
    "Cluster",
    "FakePlugin",
    "FalseDeclaration",
    "NodeBuilder",
    "NonConforming",
    "PermitGate",
    "PodBuilder",
    "PodEvent",
    "check_plugin",
    "cluster",
    "custom_resource_definition",
    "make_node",
    "make_pod",
    "replay_journal",
]

_HOMES = {
    "After": "ksched.testing.fake_plugins",
    "Call": "ksched.testing.fake_plugins",
    "Checkers": "ksched.testing.checkers",
    "Cluster": "ksched.testing.harness",
    "FakePlugin": "ksched.testing.fake_plugins",
    "FalseDeclaration": "ksched.framework.runtime.declaration_checks",
    "NEVER": "ksched.testing.fake_plugins",
    "NodeBuilder": "ksched.testing.builders",
    "NonConforming": "ksched.testing.conformance",
    "PermitGate": "ksched.testing.fake_plugins",
    "PodBuilder": "ksched.testing.builders",
    "PodEvent": "ksched.testing.harness",
    "check_plugin": "ksched.testing.conformance",
    "cluster": "ksched.testing.harness",
    "custom_resource_definition": "ksched.testing.custom_resources",
    "make_node": "ksched.testing.builders",
    "make_pod": "ksched.testing.builders",
    "replay_journal": "ksched.testing.journals",
}


def __getattr__(name: str) -> Any:
    # Builders alone need no API server, which `ksched bench` would load otherwise.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'ksched.testing' has no attribute {name!r}")
