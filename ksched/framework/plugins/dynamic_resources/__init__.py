"""DynamicResources: allocates devices for the resource claims of pods.

Does not belong here: which devices there are, which are in use, and how they are chosen
(``ksched.devices``).
"""
