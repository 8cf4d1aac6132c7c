"""Tuning constants: they affect speed, never results.

Measurements, where given, are of ``python -m tools.tuning`` in November 2026 (5,000 nodes, Python
3.11, NumPy 2.4, a two-core virtual machine); run it again before changing a number.
"""

from __future__ import annotations

from typing import Final

# -- one by one in Python, or vectorized with NumPy ----------------------------------------------

FEW_ROWS: Final = 16
"""Up to so many rows are handled one by one. The range of their codes: 2.3 µs for 16 as a list, 2.7
for 32, 3.7 for 64; 3.9 as an array of any of these lengths. Writing single cells costs more than
reading them, so the number is below where reading alone would put it."""

FEW_DOMAINS_SUMMED: Final = 32
"""Up to so many domains the lowest count is found in a list: 4.3 µs for 32, 6.2 for 64; 4.7 as
arrays."""

FEW_DOMAINS_RATED: Final = 32
"""Up to so many domains are scored one by one instead of all nodes: 17 µs for 32 domains, 40 for
128; 28 for the nodes."""

FEW_IMAGES: Final = 6
"""Up to so many images are looked up one by one; for more, each node's are scanned. 2.4 ms against
3.4 for 4 images, 5.2 against 4.3 for 8."""

FEW_CHANGED_NODES: Final = 32
"""Up to so many changed nodes are evaluated one by one by a large selector. Not measured."""

LOOK_EVERY: Final = 8
"""After so many array operations it is checked whether the result is known. Not measured."""

# -- incremental update, or rebuild --------------------------------------------------------------

MANY_CHANGES: Final = 64
"""A counter of a small cluster is rebuilt from so many changes on; in large ones an eighth of the
nodes is added. With 5,000 nodes and 10,000 pods (689 by this rule) a change costs 0.86 µs and
counting from scratch 690, which is 800 changes. Renumbering the domains of all nodes takes 60 µs,
160 changed nodes, but makes every counter of the label recount."""

MANY_TERMS: Final = 16
"""From so many affinity terms of one pod on they share a counter. Not measured."""

# -- work between two reads of the clock ---------------------------------------------------------

LARGE_SELECTOR: Final = 256
"""A node selector of so many requirements is processed in slices: 1.0 ms to evaluate on all nodes,
and 0.22 ms to compile each 64."""

REQUIREMENTS_PER_STEP: Final = 16
"""Requirements of node selectors that are processed between two pauses: 64 µs."""

TERMS_PER_STEP: Final = 64
"""Affinity terms that are processed between two pauses: 0.19 ms to compile."""

PODS_PER_SLICE: Final = 256
"""Pods woken, or groups evaluated, before yielding to the event loop: a few milliseconds."""

MEMBERS_PER_STEP: Final = 8
"""Binding cycles of a group that begin, or pass its gate, in one step of the event loop: each then
runs up to its request."""

NODES_PER_DRY_RUN: Final = 64
"""Nodes that a preemption tries at once. Not measured."""

ROWS_RECALLED: Final = 4096
"""Nodes whose known outcomes a preemption looks up before it yields. Not measured."""

CELLS_PER_DRY_RUN: Final = 500_000
"""Amounts (nodes times resources) that a preemption copies before it yields: 7 ms. 5,000 nodes of
a few resources are copied at once; with 900 extended resources, copying them all took 115 ms."""

# -- sizes of logs and caches --------------------------------------------------------------------

CHANGES_LOGGED: Final = 4096
"""Entries of a change log, up to twice that. A number takes 36 bytes, a change of pods about 110:
0.9 MB at most. Columns are rebuilt anyway when half of the rows changed."""

FLIPS_LOGGED: Final = 64
"""Changes of the feasible set that are logged; a score that missed more sums all rows."""

TERMS_LOGGED: Final = 1024
"""Terms added or removed; a reader that missed more evaluates all terms."""

AMOUNTS_CACHED: Final = 4096
"""Verdicts and sums of scores by the amounts on a node. Equal nodes filled by equal pods have one
entry for each number of pods."""

TEMPLATES_KEPT: Final = 256
"""Templates that outlive their last pod until they are swept: a few kB each, and those of a hostile
tenant less than 64 kB. Not measured."""

WEIGHTS_CACHED: Final = 4096
"""Templates whose weight a counter caches; twice as many as run, if that is more."""

PODS_COPIED_AT_ONCE: Final = 128
"""Nodes of up to so many pods are copied whole. Not measured."""

ORDERS_CACHED: Final = 512
"""Nodes whose pods are cached in reprieve order, for one priority."""

SKIPPED_SETS_CACHED: Final = 64
"""Combinations of skipped filters of which it is cached which others decide by amounts."""

OUTCOMES_CACHED: Final = 8
"""Templates of one priority for which the outcomes of dry runs are cached: 50 bytes per node, and
about 300 for each that was tried. Not measured."""

EVICTABLE_PRIORITIES_CACHED: Final = 8
"""Priorities for which the use by pods below is cached: about 60 bytes per node."""

NOMINATED_PRIORITIES_CACHED: Final = 16
"""Priorities for which the nominated pods of at least that priority are cached."""

COMMON_VALUES_KEPT: Final = 10_000
"""Values that objects of one kind share: names of nodes, times, conditions, owners."""

COMMON_VALUE_BYTES: Final = 1024
"""Above it a value is not shared: all that are kept take 10 MB at most."""

COLUMNS_BYTES: Final = 48 << 20
"""Memory for all cached columns of a profile."""

COUNTERS_BYTES: Final = 48 << 20
"""Memory for one plugin's cached state of all templates."""

COUNTERS_BYTES_PER_NODE: Final = 64
"""Approximate size of the counters of one template per node."""

LABELS_BYTES: Final = 16 << 20
"""Memory for the numbers of all label columns of a node table."""

FEWEST_LABELS: Final = 64
"""Label columns that are cached regardless of memory."""

FEWEST_CACHED: Final = 8
MOST_CACHED: Final = 1024
"""Bounds for very large and very small clusters, where memory is not the criterion."""
