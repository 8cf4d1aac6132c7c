"""How users and controllers mark groups, one file each; each turns its marks into ``Terms``.

Does not belong here: what is done with a group, which is the same for all.
"""
