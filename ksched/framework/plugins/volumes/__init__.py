"""Storage plugins: where a pod's volumes can be reached, provisioned and attached.

Does not belong here: the objects themselves and assumed changes of them
(``ksched.cache.storage.volumes``).
"""
