"""How many pods of a kind run where: counters that follow the node table change by change.

Does not belong here: what a plugin makes of the numbers.
"""
