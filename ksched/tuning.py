"""Numbers that decide how fast, never what: the answers are the same whatever they are.

Where a measurement is given it is of ``python -m tools.tuning`` in November 2026 (5,000 nodes,
Python 3.11, NumPy 2.4, a two-core virtual machine); run that again before changing a number.
"""

from __future__ import annotations

from typing import Final

# -- one by one in Python, or all at once with NumPy ---------------------------------------------

FEW_ROWS: Final = 16
"""Up to so many rows are handled one by one. The range of their codes: 2.3 µs of 16 as a list, 2.7
of 32, 3.7 of 64; 3.9 as an array of any of these lengths. Writing single cells is dearer than
reading them, so the number is below where reading alone would put it."""

FEW_DOMAINS_SUMMED: Final = 32
"""Up to so many domains the emptiest is found in a list: 4.3 µs of 32, 6.2 of 64; 4.7 as arrays."""

FEW_DOMAINS_RATED: Final = 32
"""Up to so many domains are rated one by one instead of all nodes: 17 µs of 32 domains, 40 of 128;
28 for the nodes."""

FEW_IMAGES: Final = 6
"""Up to so many images are looked for one by one; for more, each node's are looked through. 2.4 ms
against 3.4 for 4 images, 5.2 against 4.3 for 8."""

FEW_CHANGED_NODES: Final = 32
"""Up to so many changed nodes are asked about one by one by a large selector. Not measured."""

LOOK_EVERY: Final = 8
"""After so many array operations it is worth looking whether all is decided. Not measured."""

# -- catching up, or starting over ---------------------------------------------------------------

MANY_CHANGES: Final = 64
"""A counter of a small cluster starts over from so many changes on; an eighth of the nodes is added
in large ones. With 5,000 nodes and 10,000 pods (689 by this rule) a change costs 0.86 µs and
counting anew 690, which is 800 changes. Numbering the domains of all nodes anew takes 60 µs, 160
changed nodes, but sends every counter of the label to count anew."""

MANY_TERMS: Final = 16
"""From so many affinity terms of one pod on they share a counter. Not measured."""

# -- work between two looks at the clock ---------------------------------------------------------

LARGE_SELECTOR: Final = 256
"""A node selector of so many requirements is worked through in slices: 1.0 ms to ask about all
nodes, and 0.22 ms to compile each 64."""

REQUIREMENTS_PER_STEP: Final = 16
"""Requirements of node selectors that are looked at between two pauses: 64 µs."""

TERMS_PER_STEP: Final = 64
"""Affinity terms that are looked at between two pauses: 0.19 ms to compile."""

PODS_PER_SLICE: Final = 256
"""Pods that are woken, or groups asked about, without giving way: a few milliseconds' worth."""

NODES_PER_DRY_RUN: Final = 64
"""Nodes that a preemption tries at once. Not measured."""

CELLS_PER_DRY_RUN: Final = 500_000
"""Amounts (nodes times resources) that a preemption copies without giving way: 7 ms. 5,000 nodes of
a few resources are copied at once; with 900 extended resources, copying them all took 115 ms."""

# -- how much is remembered ----------------------------------------------------------------------

CHANGES_LOGGED: Final = 4096
"""What a change log keeps, up to twice that. A number takes 36 bytes, a change of pods about 110:
0.9 MB at most. Columns start over anyway when half of the rows changed."""

FLIPS_LOGGED: Final = 64
"""Changes of the feasible set that are remembered; a score that missed more adds up all rows."""

TERMS_LOGGED: Final = 1024
"""Terms that came or went; what missed more asks about all terms."""

AMOUNTS_CACHED: Final = 4096
"""Verdicts and sums of scores by the amounts on a node. Equal nodes filled by equal pods have one
entry for each number of pods."""

WEIGHTS_CACHED: Final = 4096
"""Templates of which a counter knows how much they count; twice as many as run, if that is more."""

ORDERS_CACHED: Final = 512
"""Nodes whose pods are kept in the order of their reprieve, for one priority."""

EVICTABLE_PRIORITIES_CACHED: Final = 8
"""Priorities for which it is kept what the pods below take: about 60 bytes for each node."""

NOMINATED_PRIORITIES_CACHED: Final = 16
"""Priorities for which the nominated pods of at least that priority are kept."""

COLUMNS_BYTES: Final = 48 << 20
"""Memory for all cached columns of a profile."""

COUNTERS_BYTES: Final = 48 << 20
"""Memory for what one plugin caches of all templates."""

COUNTERS_BYTES_PER_NODE: Final = 64
"""Roughly what the counters of one template take for each node."""

LABELS_BYTES: Final = 16 << 20
"""Memory for the numbers of all label columns of a node table."""

FEWEST_LABELS: Final = 64
"""Label columns that are kept however much memory they take."""

FEWEST_CACHED: Final = 8
MOST_CACHED: Final = 1024
"""Bounds where memory is no measure: in clusters so large, or so small."""
