"""How plugins are called: registry, profiles, the pipeline of a cycle, and what is kept between.

The contract is ``ksched.framework``; this is its engine. Does not belong here: what a plugin
checks, which pod is next, anything that talks to the API server.
"""
