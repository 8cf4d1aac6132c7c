"""The laboratory: what ksched is examined with and users do not install.

Does not belong here: anything that ``ksched`` imports, and measurements of speed (``bench``).
"""
