"""The contract with plugins: everything a plugin author needs, and nothing else.

``interface`` lists the extension points in pipeline order; ``status``, ``verdicts``,
``cluster_events`` and ``cycle_state`` are the values passed through them, ``depends_on`` is the
declaration of a columnar plugin. Also for plugins, in the tree or not: ``counters`` (pods by
domain), ``node_columns`` (the node table), ``freshness`` (what changed, and a bounded cache),
``assumed_volumes`` (volumes and claims). Does not belong here: how plugins are called
(``ksched.framework.runtime``) and the in-tree plugins (``ksched.framework.plugins``).
"""

from ksched.api.objects import ObjectMeta
from ksched.api.watched_kinds import Unstructured, WatchedKind
from ksched.cache.listers import Lister, Listers
from ksched.cache.node_info import NodeInfo
from ksched.cache.node_table import ClassColumn, NodeRows
from ksched.cache.pod_info import (
    HostPort,
    PodInfo,
    PodTemplate,
    host_ports_of,
    ports_conflict,
    template_fact,
)
from ksched.cache.snapshot import Snapshot
from ksched.framework.cluster_events import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
    Subjects,
)
from ksched.framework.cycle_state import CycleState
from ksched.framework.depends_on import FilterDependsOn, Scope, ScoreDependsOn
from ksched.framework.diagnosis import Diagnosis
from ksched.framework.handle import Handle, PluginFactory, PluginTasks
from ksched.framework.interface import (
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
    PermitResult,
    PostFilterResult,
    PreFilterResult,
)
from ksched.framework.normalizing import default_normalize
from ksched.framework.queued_pod import QueuedPodInfo
from ksched.framework.status import (
    PASS_TEMPLATE,
    SKIP,
    SKIP_TEMPLATE,
    SUCCESS,
    Code,
    Status,
    error,
    pending,
    unresolvable,
    unschedulable,
    wait,
)
from ksched.framework.verdicts import ChangedVerdicts, ClassScores, Verdicts

__all__ = [
    "MAX_NODE_SCORE",
    "MIN_NODE_SCORE",
    "PASS_TEMPLATE",
    "SKIP",
    "SKIP_TEMPLATE",
    "SUCCESS",
    "Action",
    "ChangedVerdicts",
    "ClassColumn",
    "ClassScores",
    "ClusterEvent",
    "ClusterEventWithHint",
    "Code",
    "CycleState",
    "Diagnosis",
    "FilterDependsOn",
    "Handle",
    "HostPort",
    "Lister",
    "Listers",
    "NodeInfo",
    "NodeRows",
    "ObjectMeta",
    "PermitResult",
    "PluginFactory",
    "PluginTasks",
    "PodInfo",
    "PodTemplate",
    "PostFilterResult",
    "PreFilterResult",
    "QueuedPodInfo",
    "QueueingHint",
    "Resource",
    "Scope",
    "ScoreDependsOn",
    "Snapshot",
    "Status",
    "Subjects",
    "Unstructured",
    "Verdicts",
    "WatchedKind",
    "default_normalize",
    "error",
    "host_ports_of",
    "pending",
    "ports_conflict",
    "template_fact",
    "unresolvable",
    "unschedulable",
    "wait",
]
