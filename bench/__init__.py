"""Measuring schedulers on a real control plane: how fast they drain, how long a pod waits.

kube-scheduler and ksched do the same work in turns within one run, so that the ratios mean
something on a machine whose absolute figures do not. See README.md beside this file.

Does not belong here: anything that the scheduler or its tests need, and measurements without an API
server (``ksched bench``).
"""
