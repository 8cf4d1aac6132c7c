"""A conformance kit for plugins: random clusters, and properties that hold on all of them.

``check_plugin`` in an author's own pytest, ``ksched check-plugin`` on the command line. One module
per check; ``trial`` is the scheduler under test, ``questions`` the calls of the plugin, ``report``
the findings.

Does not belong here: what a single plugin is supposed to decide (its own tests say that).
"""

from ksched.testing.conformance.kit import NonConforming, check_plugin
from ksched.testing.conformance.report import Finding, Report

__all__ = ["Finding", "NonConforming", "Report", "check_plugin"]
