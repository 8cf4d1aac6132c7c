"""Incremental counters of matching pods per node and topology domain.

Does not belong here: rules based on the counts (plugins).
"""
