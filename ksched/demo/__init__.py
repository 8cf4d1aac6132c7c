"""``ksched demo``: an embedded cluster, a scripted workload, and a live view.

``story`` does things to the cluster, ``scoreboard`` counts what the scheduler does about them,
``screen`` and ``plain_lines`` show it, ``result`` says how it ended; ``show`` puts them together.
``gang_permit`` is an out-of-tree plugin as a user would write it.

Does not belong here: anything the scheduler or the embedded cluster needs. The demo only uses what
every user may use.
"""
