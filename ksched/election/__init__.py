"""One active replica among several: a lock on the API server, and work that lives inside it.

``locks`` keep the record of who leads in a Kubernetes object, ``elector`` acquires, renews and
releases it, ``fence`` keeps the leader's writes inside the time for which it holds.

Does not belong here: what a leader does, and what a process does when it is no longer one.
"""

from ksched.election.elector import Callbacks, Elector
from ksched.election.fence import WriteFence
from ksched.election.locks import make_identity, make_lock
from ksched.election.record import LeaderElectionRecord

__all__ = [
    "Callbacks",
    "Elector",
    "LeaderElectionRecord",
    "WriteFence",
    "make_identity",
    "make_lock",
]
