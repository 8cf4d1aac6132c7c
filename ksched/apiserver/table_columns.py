"""The columns of each kind and the cells of one object under them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from ksched.apiserver.served_resources import JsonObject

_NONE, _UNKNOWN = "<none>", "<unknown>"


class Column(NamedTuple):
    """A column's head; those of priority 1 are shown by ``-o wide`` only."""

    name: str
    type: str = "string"
    priority: int = 0


Cells: TypeAlias = Callable[[JsonObject, float], list[Any]]


def _columns(text: str) -> list[Column]:
    """Read ``Name Age* Count#``: a star for wide, a hash for integers, underscores for spaces."""
    columns = []
    for word in text.split():
        name = word.rstrip("*#").replace("_", " ")
        columns.append(Column(name, "integer" if "#" in word else "string", int("*" in word)))
    return columns


def human_duration(seconds: float) -> str:
    """Return a duration the way kubectl shows ages (``duration.HumanDuration``)."""
    s = int(seconds)
    m, h = s // 60, s // 3600
    if s < 0:
        return "<invalid>" if s < -1 else "0s"
    if s < 120:
        return f"{s}s"
    if m < 10:
        return f"{m}m{s % 60}s" if s % 60 else f"{m}m"
    if m < 180:
        return f"{m}m"
    if h < 8:
        return f"{h}h{m % 60}m" if m % 60 else f"{h}h"
    if h < 48:
        return f"{h}h"
    days = h // 24
    if days < 8:
        return f"{days}d{h % 24}h" if h % 24 else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return f"{days // 365}y{days % 365}d" if days % 365 else f"{days // 365}y"
    return f"{days // 365}y"


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def _since(timestamp: str | None, now: float) -> str:
    return human_duration(now - _seconds(timestamp)) if timestamp else _UNKNOWN


def _age(obj: JsonObject, now: float) -> str:
    return _since(obj["metadata"].get("creationTimestamp"), now)


def _name(obj: JsonObject) -> str:
    return str(obj["metadata"]["name"])


def _selector(selector: JsonObject | None) -> str:
    labels = (selector or {}).get("matchLabels", {})
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or _NONE


def _layout(template: JsonObject) -> list[str]:
    containers = (template.get("spec") or {}).get("containers") or []
    names = ",".join(container["name"] for container in containers)
    return [names, ",".join(container.get("image", "") for container in containers)]


def _condition(obj: JsonObject, kind: str) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((c["status"] for c in conditions if c["type"] == kind), "")


def _pod(pod: JsonObject, now: float) -> list[Any]:
    spec, status = pod["spec"], pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    ready = sum(1 for s in statuses if s.get("ready") and "running" in (s.get("state") or {}))
    restarts = sum(s.get("restartCount", 0) for s in statuses)
    sidecars = [c for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"]
    total = len(spec["containers"]) + len(sidecars)
    ips = status.get("podIPs") or [{"ip": status.get("podIP")}]
    return [
        _name(pod),
        f"{ready}/{total}",
        pod_status(pod),
        str(restarts),
        _age(pod, now),
        ips[0].get("ip") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _NONE,
    ]


def pod_status(pod: JsonObject) -> str:
    """Return the word in kubectl's STATUS column."""
    status = pod.get("status") or {}
    phase = status.get("phase", "")
    reason = status.get("reason") or phase
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            ended = state["terminated"]
            reason = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
    if pod["metadata"].get("deletionTimestamp") and phase not in ("Succeeded", "Failed"):
        return "Terminating"
    return str(reason)


def _node(node: JsonObject, now: float) -> list[Any]:
    status = node.get("status") or {}
    info = status.get("nodeInfo") or {}
    ready = _condition(node, "Ready")
    state = "Unknown" if not ready else "Ready" if ready == "True" else "NotReady"
    if node.get("spec", {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix, labels = "node-role.kubernetes.io/", node["metadata"].get("labels") or {}
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    addresses = {a["type"]: a["address"] for a in status.get("addresses") or []}
    kernel = info.get("kernelVersion") or _UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        _name(node),
        state,
        ",".join(sorted(roles)) or _NONE,
        _age(node, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or _UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def _event(event: JsonObject, now: float) -> list[Any]:
    first = _since(event.get("firstTimestamp") or event.get("eventTime"), now)
    last = _since(event["lastTimestamp"], now) if event.get("lastTimestamp") else first
    count, series = event.get("count") or 1, event.get("series")
    if series:
        last, count = _since(series.get("lastObservedTime"), now), series.get("count")
    subject = event.get("involvedObject") or {}
    target = subject.get("kind", "").lower()
    if subject.get("name"):
        target = f"{target}/{subject['name']}"
    source = event.get("source") or {}
    reporter = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return [
        last,
        event.get("type", ""),
        event.get("reason", ""),
        target,
        subject.get("fieldPath", ""),
        f"{reporter}, {host}" if host else reporter,
        (event.get("message") or "").strip(),
        first,
        count,
        _name(event),
    ]


def _replicas(obj: JsonObject, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    numbers = [spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0)]
    selector = spec.get("selector")
    if selector and "matchLabels" not in selector and "matchExpressions" not in selector:
        selector = {"matchLabels": selector}
    return [_name(obj), *numbers, _age(obj, now), *_layout(spec["template"]), _selector(selector)]


def _deployment(obj: JsonObject, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    return [
        _name(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(obj, now),
        *_layout(spec["template"]),
        _selector(spec.get("selector")),
    ]


def _stateful_set(obj: JsonObject, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [_name(obj), ready, _age(obj, now), *_layout(spec["template"])]


def _daemon_set(obj: JsonObject, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    fields = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    numbers = [status.get(field, 0) for field in fields]
    selector = spec["template"]["spec"].get("nodeSelector") or {}
    where = _selector({"matchLabels": selector})
    layout = [*_layout(spec["template"]), _selector(spec.get("selector"))]
    return [_name(obj), *numbers, where, _age(obj, now), *layout]


def _job(obj: JsonObject, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    state = "Running"
    for kind in ("Complete", "Failed", "Suspended"):
        if _condition(obj, kind) == "True":
            state = kind
            break
    start, end = status.get("startTime"), status.get("completionTime")
    took = ""
    if start:
        took = human_duration((_seconds(end) if end else now) - _seconds(start))
    done = f"{status.get('succeeded', 0)}/{spec.get('completions', 1)}"
    layout = [*_layout(spec["template"]), _selector(spec.get("selector"))]
    return [_name(obj), state, done, took, _age(obj, now), *layout]


def _service(obj: JsonObject, now: float) -> list[Any]:
    spec = obj["spec"]
    ports = ",".join(f"{p['port']}/{p.get('protocol', 'TCP')}" for p in spec.get("ports") or [])
    return [
        _name(obj),
        spec.get("type", ""),
        spec.get("clusterIP") or _NONE,
        spec.get("externalName") or _NONE,
        ports or _NONE,
        _age(obj, now),
        _selector({"matchLabels": spec.get("selector") or {}}),
    ]


def _budget(obj: JsonObject, now: float) -> list[Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    bounds = [str(spec.get(field, "N/A")) for field in ("minAvailable", "maxUnavailable")]
    return [_name(obj), *bounds, status.get("disruptionsAllowed", 0), _age(obj, now)]


def _lease(obj: JsonObject, now: float) -> list[Any]:
    return [_name(obj), (obj.get("spec") or {}).get("holderIdentity") or "", _age(obj, now)]


def _namespace(obj: JsonObject, now: float) -> list[Any]:
    return [_name(obj), (obj.get("status") or {}).get("phase", ""), _age(obj, now)]


def _priority_class(obj: JsonObject, now: float) -> list[Any]:
    default, policy = bool(obj.get("globalDefault")), obj.get("preemptionPolicy", "")
    return [_name(obj), obj.get("value", 0), default, _age(obj, now), policy]


def _data(obj: JsonObject, now: float) -> list[Any]:
    count = len(obj.get("data") or {}) + len(obj.get("binaryData") or {})
    return [_name(obj), count, _age(obj, now)]


def _secret(obj: JsonObject, now: float) -> list[Any]:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or {}), _age(obj, now)]


def _modes(spec: JsonObject) -> str:
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    return ",".join(short.get(mode, mode) for mode in spec.get("accessModes") or [])


def _volume(obj: JsonObject, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    claim = spec.get("claimRef") or {}
    return [
        _name(obj),
        (spec.get("capacity") or {}).get("storage", ""),
        _modes(spec),
        spec.get("persistentVolumeReclaimPolicy", ""),
        status.get("phase", ""),
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName", ""),
        status.get("reason", ""),
        _age(obj, now),
        spec.get("volumeMode", ""),
    ]


def _claim(obj: JsonObject, now: float) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    return [
        _name(obj),
        status.get("phase", ""),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", ""),
        _modes(spec) if spec.get("volumeName") else "",
        spec.get("storageClassName", ""),
        _age(obj, now),
        spec.get("volumeMode", ""),
    ]


def _storage_class(obj: JsonObject, now: float) -> list[Any]:
    annotation = "storageclass.kubernetes.io/is-default-class"
    is_default = (obj["metadata"].get("annotations") or {}).get(annotation) == "true"
    return [
        f"{_name(obj)} (default)" if is_default else _name(obj),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", ""),
        obj.get("volumeBindingMode", ""),
        bool(obj.get("allowVolumeExpansion")),
        _age(obj, now),
    ]


def _plain(obj: JsonObject, now: float) -> list[Any]:
    return [_name(obj), _age(obj, now)]


GENERIC: tuple[list[Column], Cells] = (_columns("Name Age"), _plain)


def custom_columns(wanted: Iterable[Mapping[str, Any]]) -> tuple[list[Column], Cells]:
    """The columns of a custom kind; of JSON paths those without lists and filters are followed."""
    wanted = tuple(wanted)
    columns = [Column("Name")] + [
        Column(one["name"], one.get("type", "string"), one.get("priority", 0)) for one in wanted
    ]

    def cells(obj: JsonObject, now: float) -> list[Any]:
        return [_name(obj), *(_custom_cell(one, obj, now) for one in wanted)]

    return columns, cells


def _custom_cell(column: Mapping[str, Any], obj: JsonObject, now: float) -> Any:
    value: Any = obj
    for name in column["jsonPath"].strip(".").split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return _since(value, now) if value is not None and column.get("type") == "date" else value


_LAYOUT = "Containers* Images* Selector*"
KINDS: dict[str, tuple[list[Column], Cells]] = {
    "pods": (
        _columns("Name Ready Status Restarts Age IP* Node* Nominated_Node* Readiness_Gates*"),
        _pod,
    ),
    "nodes": (
        _columns(
            "Name Status Roles Age Version Internal-IP* External-IP* OS-Image* Kernel-Version* "
            "Container-Runtime*"
        ),
        _node,
    ),
    "events": (
        _columns(
            "Last_Seen Type Reason Object Subobject* Source* Message First_Seen* Count*# Name*"
        ),
        _event,
    ),
    "namespaces": (_columns("Name Status Age"), _namespace),
    "services": (_columns("Name Type Cluster-IP External-IP Port(s) Age Selector*"), _service),
    "configmaps": (_columns("Name Data# Age"), _data),
    "secrets": (_columns("Name Type Data# Age"), _secret),
    "replicationcontrollers": (
        _columns(f"Name Desired# Current# Ready# Age {_LAYOUT}"),
        _replicas,
    ),
    "replicasets.apps": (_columns(f"Name Desired# Current# Ready# Age {_LAYOUT}"), _replicas),
    "deployments.apps": (_columns(f"Name Ready Up-to-date# Available# Age {_LAYOUT}"), _deployment),
    "statefulsets.apps": (_columns("Name Ready Age Containers* Images*"), _stateful_set),
    "daemonsets.apps": (
        _columns(
            f"Name Desired# Current# Ready# Up-to-date# Available# Node_Selector Age {_LAYOUT}"
        ),
        _daemon_set,
    ),
    "jobs.batch": (_columns(f"Name Status Completions Duration Age {_LAYOUT}"), _job),
    "poddisruptionbudgets.policy": (
        _columns("Name Min_Available Max_Unavailable Allowed_Disruptions# Age"),
        _budget,
    ),
    "leases.coordination.k8s.io": (_columns("Name Holder Age"), _lease),
    "priorityclasses.scheduling.k8s.io": (
        _columns("Name Value# Global-Default Age PreemptionPolicy"),
        _priority_class,
    ),
    "persistentvolumes": (
        _columns(
            "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass Reason Age "
            "VolumeMode*"
        ),
        _volume,
    ),
    "persistentvolumeclaims": (
        _columns("Name Status Volume Capacity Access_Modes StorageClass Age VolumeMode*"),
        _claim,
    ),
    "storageclasses.storage.k8s.io": (
        _columns(
            "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age",
        ),
        _storage_class,
    ),
}
KINDS["events.events.k8s.io"] = KINDS["events"]
