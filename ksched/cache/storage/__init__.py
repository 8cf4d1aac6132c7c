"""Volumes and claims as the volume plugins look them up.

Does not belong here: rules about volumes (``framework.plugins.volumes``).
"""
