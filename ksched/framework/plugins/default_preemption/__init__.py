"""DefaultPreemption: room for important pods, at the expense of less important ones.

Does not belong here: getting rid of the victims (``ksched.scheduling.preemption_executor``).
"""
