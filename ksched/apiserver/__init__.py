"""A small Kubernetes API server in memory, and a kubelet that simulates running pods.

``ApiServer`` handles requests synchronously; ``InProcessTransport`` passes them without a socket
(and so works on virtual time), ``http_listener`` over HTTP for kubectl and ``ksched run``.

A difference from a real kube-apiserver is a bug, except for these: every request is authorized
(RBAC objects are stored, not enforced); unknown fields are stored; ``managedFields`` do not exist,
so server-side apply merges and never removes; foreground deletion is background deletion, and
orphaning happens at once; volumes get no protection finalizers, services no addresses.

Does not belong here: any part of the scheduler. This is the other side of the wire and imports
nothing of ksched but the API arithmetic, clock, errors and transport contract.
"""
