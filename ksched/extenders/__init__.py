"""Programs outside that take part in decisions over HTTP (KEP-1819).

``extender`` is one of them: the requests and what an answer means. ``wire`` is the format,
``http_client`` carries the requests, ``chain`` is all of them in their order, as the cycles call
them.

Does not belong here: how an extender is configured (``configuration.extenders``).
"""
