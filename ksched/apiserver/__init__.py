"""A small, honest Kubernetes API server in memory, and a kubelet that pretends to run pods.

``ApiServer`` answers requests synchronously; ``InProcessTransport`` brings them without a socket
(and so works on virtual time), ``listener`` brings them over HTTP for kubectl and for ``ksched
run``. What a real kube-apiserver does differently is a bug here.

Does not belong here: anything the scheduler knows. This is the other side of the wire and imports
nothing of ksched but the API arithmetic, clock, errors and transport contract.
"""
