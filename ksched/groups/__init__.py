"""Pod groups: which pods belong together, and how many of them must be placed at once.

``dialects`` read the marks that users and controllers put on pods and the objects beside them;
``registry`` counts the members; ``slots`` proves that a group does not fit. Does not belong here:
the placement of members (``ksched.scheduling.group_cycle``) and writes to the API server.
"""
