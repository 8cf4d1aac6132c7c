"""A small, honest Kubernetes API server in memory, and a kubelet that pretends to run pods.

``ApiServer`` answers requests synchronously; ``InProcessTransport`` brings them without a socket
(and so works on virtual time), ``listener`` brings them over HTTP for kubectl and for ``ksched
run``.

What a real kube-apiserver does differently is a bug here, except for these: whoever asks may do
everything (RBAC objects are stored, not obeyed); fields nobody knows are kept; ``managedFields`` do
not exist, so server-side apply merges and never takes away; foreground deletion is background
deletion, and orphaning happens at once; volumes get no protection finalizers; services no
addresses.

Does not belong here: anything the scheduler knows. This is the other side of the wire and imports
nothing of ksched but the API arithmetic, clock, errors and transport contract.
"""
