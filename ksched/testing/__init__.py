"""Test support for ksched and for plugin authors: a whole cluster inside your own pytest.

Does not belong here: anything the scheduler needs to run. Nothing outside the tests and the command
line imports this package.
"""

from ksched.framework.runtime.declaration_checks import FalseDeclaration
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.checkers import Checkers
from ksched.testing.conformance import NonConforming, check_plugin
from ksched.testing.custom_resources import custom_resource_definition
from ksched.testing.fake_plugins import NEVER, After, Call, FakePlugin, PermitGate
from ksched.testing.harness import Cluster, PodEvent, cluster

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
]
