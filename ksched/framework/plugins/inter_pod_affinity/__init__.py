"""InterPodAffinity: required and preferred affinity and anti-affinity between pods.

Does not belong here: counting pods (``ksched.framework.counters``).
"""
