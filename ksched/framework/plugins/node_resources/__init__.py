"""NodeResourcesFit and NodeResourcesBalancedAllocation: room on nodes, and using it evenly.

Does not belong here: how requests of pods are added up (``ksched.api.pod_resources``).
"""
