"""NodeResourcesFit and NodeResourcesBalancedAllocation: free resources and balanced use.

Does not belong here: how requests of pods are summed (``ksched.api.pod_resources``).
"""
