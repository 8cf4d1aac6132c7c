"""Kubernetes data: the objects a scheduler reads, and the arithmetic defined on them.

Does not belong here: I/O, time, policy. Nothing in this package decides where a pod is placed.
"""
