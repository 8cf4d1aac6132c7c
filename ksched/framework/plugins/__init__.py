"""The in-tree plugins, under kube-scheduler's names, each written once over columns.

``in_tree`` lists them. They live by the rules of everybody's plugins: they see
``ksched.framework`` and ``ksched.api``, never the cache behind them, the queue, the client, the
runtime or each other. Does not belong here: caches of what the runtime keeps, and how
plugins are called.
"""
