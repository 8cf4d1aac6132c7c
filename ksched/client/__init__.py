"""The only code that talks to an API server.

``kubeconfig`` finds the server and the credentials, ``http_transport`` moves bytes, ``rest`` speaks
Kubernetes' verbs, ``reflector`` maintains a copy of one kind of object and ``recorder`` writes
Events. Everything above sees typed errors (``ksched.errors``) and complete responses.

Does not belong here: what a change means to the scheduler (event handlers), what to do when a bind
fails (the binding cycle), leadership (election), and any decoding of a particular kind.
"""
