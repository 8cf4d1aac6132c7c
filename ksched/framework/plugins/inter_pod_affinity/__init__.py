"""InterPodAffinity: near some pods, away from others.

Does not belong here: counting pods (``ksched.framework.counters``).
"""
