"""DefaultPreemption: evicts pods of lower priority for a pod that fits nowhere.

Does not belong here: the evictions themselves (``ksched.scheduling.preemption_executor``).
"""
