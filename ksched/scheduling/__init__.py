"""The scheduling life of a pod: from a watched change to a bind that the watch confirms.

``scheduler`` builds the parts and owns the tasks. ``event_handlers`` route changes to cache and
queue; ``scheduling_cycle`` decides, serialized; ``binding_cycle`` binds, concurrently;
``failure_handler`` returns what failed to the queue; ``preemption_executor`` evicts; ``pod_status``
writes conditions; ``decisions`` remembers.

Does not belong here: rules (``framework.plugins``) and what a process needs (``daemon``).
"""
