"""What a person or a monitoring system may ask a running scheduler over HTTP, read-only.

Does not belong here: anything that changes the scheduler's state, and the Kubernetes API (that is
``ksched.client`` on our side and ``ksched.apiserver`` on the other).
"""
