"""Test support for ksched and for plugin authors: a whole cluster inside your own pytest.

Does not belong here: anything the scheduler needs to run. Nothing outside the tests and the command
line imports this package.
"""

from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod

__all__ = ["NodeBuilder", "PodBuilder", "make_node", "make_pod"]
