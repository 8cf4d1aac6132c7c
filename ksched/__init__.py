"""ksched: a kube-scheduler in Python."""

__version__ = "0.1.0"
