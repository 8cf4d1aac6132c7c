"""Why a pod is pending or placed: one decision on a cluster that is read once and never written.

Does not belong here: watching, queueing, binding, evicting, or any other write.
"""
