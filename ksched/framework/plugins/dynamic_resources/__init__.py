"""DynamicResources: the devices that a pod's resource claims ask for.

Does not belong here: which devices there are, which are in use, and how they are chosen
(``ksched.devices``).
"""
