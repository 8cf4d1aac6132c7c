"""Objects at the limits of API validation, thrown at the whole scheduler.

``make fuzz`` goes on from a new seed. An episode is a small cluster's life on the embedded API
server in virtual time; after every step the decision is compared with the reference, the books with
the API server's objects, and the longest uninterrupted run of the event loop with its limit.

Does not belong here: deliberate attacks of known size (``tests/hostile``).
"""
