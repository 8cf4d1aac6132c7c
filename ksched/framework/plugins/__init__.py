"""The in-tree plugins, under kube-scheduler's names, each written once over columns.

``in_tree`` lists them. The same rules apply to them as to any plugin: they import
``ksched.framework`` and ``ksched.api``, never the cache, the queue, the client, the runtime or each
other. Does not belong here: the runtime's caches, and how plugins are called.
"""
