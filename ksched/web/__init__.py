"""The read-only HTTP endpoints of a running scheduler.

Does not belong here: anything that changes the scheduler's state, and the Kubernetes API
(``ksched.client`` on our side and ``ksched.apiserver`` on the other).
"""
