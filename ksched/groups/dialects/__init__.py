"""The notations of pod groups, one file each; each converts its own to ``Terms``.

Does not belong here: the treatment of groups, which is the same for all dialects.
"""
