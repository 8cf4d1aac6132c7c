"""The journal: what a scheduler saw and decided, in files, and the decisions made again from them.

Does not belong here: anything that influences a decision. A journal that cannot be written loses
records, never a pod.
"""
