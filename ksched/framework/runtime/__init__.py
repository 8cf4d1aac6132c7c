"""The plugin runtime: registry, profiles, the pipeline of a cycle, and caches between cycles.

The contract is ``ksched.framework``; this is its implementation. Does not belong here: rules of
plugins, queue order, anything that talks to the API server.
"""
