"""The scheduler once more, slowly: per node, without caches, written to be read.

Everything is computed anew from the API objects for every question, with Python's integers and in
the order of kube-scheduler's rules (v1.36). It shares no code with the plugins, the cache or the
runtime, so that a test can compare the two and find the mistake of one of them.

    decision = decide(nodes, {"n1": [running_pod]}, pod)
    decision.rejections["n2"].reasons, decision.scores["n1"]["ImageLocality"], decision.best

Does not belong here: anything that makes it faster, and any import of ``ksched.framework`` or
``ksched.cache``.
"""

from lab.reference.decision import Decision, Rejection, decide, would_take
from lab.reference.world import (
    DEFAULT_PROFILE,
    OtherObjects,
    ReferenceProfile,
    World,
)

__all__ = [
    "DEFAULT_PROFILE",
    "Decision",
    "OtherObjects",
    "ReferenceProfile",
    "Rejection",
    "World",
    "decide",
    "would_take",
]
