"""Scheduler extenders: external HTTP services that take part in decisions (KEP-1819).

``extender`` is one of them: the requests and the meaning of responses. ``wire`` is the format,
``http_client`` sends the requests, ``chain`` is all of them in order, as called by the cycles.

Does not belong here: how an extender is configured (``configuration.extenders``).
"""
