"""What the cluster looks like: nodes, the pods on them, assumed pods included.

``SchedulerCache`` is the single writer of these facts; a ``Snapshot`` is what one scheduling cycle
sees of them. Does not belong here: pending pods (the queue's), verdicts (the framework's), I/O.
"""
