"""PodTopologySpread: evenly over zones, hosts or any other label of nodes.

Does not belong here: counting pods (``ksched.framework.counters``).
"""
