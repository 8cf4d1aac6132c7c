"""The scheduling life of a pod: from a watch event to a bind that the watch confirms.

``scheduler`` builds the parts and owns the tasks. ``event_handlers`` route changes to cache and
queue; ``scheduling_cycle`` decides, serialized; ``binding_cycle`` binds, concurrently;
``failure_handler`` returns failed attempts to the queue; ``preemption_executor`` evicts;
``pod_status`` writes conditions; ``decisions`` is a log of outcomes.

Does not belong here: scheduling rules (``framework.plugins``) and process concerns (``daemon``).
"""
