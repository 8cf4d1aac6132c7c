"""Leader election: a lock on the API server, and work that runs only while it is held.

``locks`` store the leader's record in a Kubernetes object, ``elector`` acquires, renews and
releases it, ``fence`` restricts the leader's writes to the time for which it holds the lease.

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
