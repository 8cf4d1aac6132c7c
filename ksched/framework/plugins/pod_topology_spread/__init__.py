"""PodTopologySpread: spreads pods over zones, hosts or any other node label.

Does not belong here: counting pods (``ksched.framework.counters``).
"""
