"""Cluster state: nodes and the pods on them, assumed pods included.

``SchedulerCache`` is the single writer; a ``Snapshot`` is the view of one scheduling cycle. Does
not belong here: pending pods (queue), verdicts (framework), I/O.
"""
