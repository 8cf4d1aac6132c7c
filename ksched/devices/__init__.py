"""Devices of dynamic resource allocation: what they are and which of them a claim can have.

What does not belong here: plugins, queues, calls to the API server.
"""
