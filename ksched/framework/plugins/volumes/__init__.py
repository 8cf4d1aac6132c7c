"""Plugins about storage: where a pod's volumes can be reached, made and attached.

Does not belong here: the objects themselves and the promises made of them
(``ksched.cache.storage.volumes``).
"""
