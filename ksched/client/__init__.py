"""The only code that talks to an API server.

``kubeconfig`` finds the server and the credentials, ``http_transport`` moves bytes, ``rest`` speaks
Kubernetes' verbs, ``reflector`` keeps a copy of one kind of object up to date and ``recorder``
writes Events. Everything above sees typed errors (``ksched.errors``) and complete answers.

Does not belong here: what a change means to the scheduler (event handlers), what to do when a bind
fails (the binding cycle), when to lead (election), and any decoding of a particular kind.
"""
