"""KubeSchedulerConfiguration ``kubescheduler.config.k8s.io/v1`` as frozen models.

``SchedulerConfiguration()`` is the default configuration. Semantic checks are in ``validation``;
the models only guarantee the shape, so that all mistakes can be reported together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, PlainSerializer, PlainValidator, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from ksched.configuration.defaults import DEFAULT_SCHEDULER_NAME
from ksched.configuration.durations import Seconds
from ksched.configuration.extenders import Extender
from ksched.configuration.merging import default_args, merge_plugins
from ksched.configuration.plugin_args import ARGS, PluginArgs, decode_args
from ksched.configuration.plugins import Plugins
from ksched.configuration.strict_model import (
    API_VERSION,
    Int32,
    Int64,
    Listed,
    StrictModel,
    unless_zero,
)


class LeaderElection(StrictModel):
    """Settings of leader election.

    The three durations are safe for any clock drift that is small against
    ``lease_duration_seconds`` minus ``renew_deadline_seconds``: the leader has stopped before
    another may start.
    """

    leader_elect: bool = True
    """Elect a leader before scheduling; on, because two active schedulers overcommit."""
    lease_duration_seconds: Annotated[Seconds, Field(alias="leaseDuration"), unless_zero(15.0)] = (
        15.0
    )
    """Seconds that other candidates wait, after the last renewal they saw, before they take over.
    15: an outage of a few renewals does not move the leadership, a crash costs 15 s."""
    renew_deadline_seconds: Annotated[Seconds, Field(alias="renewDeadline"), unless_zero(10.0)] = (
        10.0
    )
    """Seconds that the leader retries to renew before it stops working."""
    retry_period_seconds: Annotated[Seconds, Field(alias="retryPeriod"), unless_zero(2.0)] = 2.0
    """Seconds between two attempts to acquire or renew."""
    resource_lock: Annotated[str, unless_zero("leases")] = "leases"
    """Kind of object that holds the lock; others than leases are for old clusters."""
    resource_name: Annotated[str, unless_zero("kube-scheduler")] = "kube-scheduler"
    """Name of that object. kube-scheduler's own, so that the two never schedule concurrently."""
    resource_namespace: Annotated[str, unless_zero("kube-system")] = "kube-system"
    """Namespace of that object."""


def _shortest_number(value: float) -> float | int:
    return int(value) if value.is_integer() else value


class ClientConnection(StrictModel):
    """Connection to the API server."""

    kubeconfig: str = ""
    """Path of a kubeconfig file; empty for the flag's one or the in-cluster credentials."""
    accept_content_types: str = ""
    """For compatibility; ksched requests JSON."""
    content_type: Annotated[str, unless_zero("application/vnd.kubernetes.protobuf")] = (
        "application/vnd.kubernetes.protobuf"
    )
    """For compatibility; ksched writes JSON."""
    qps: Annotated[float, unless_zero(50.0), PlainSerializer(_shortest_number)] = 50.0
    """Average requests per second; negative is no limit. 50: suits a small API server; raise it on
    clusters that schedule more than 20 pods a second."""
    burst: Annotated[Int32, unless_zero(100)] = 100
    """Requests that may be sent at once after an idle time."""


def _decode_args(value: Any, info: ValidationInfo) -> PluginArgs | dict[str, Any] | None:
    if isinstance(value, PluginArgs):
        return value
    name = info.data.get("name", "")
    if value is None:
        return ARGS[name]() if name in ARGS else None
    if not isinstance(value, Mapping):
        raise PydanticCustomError("dict_type", "must be an object")
    return decode_args(name, value)


def _dump_args(args: PluginArgs | dict[str, Any] | None) -> dict[str, Any] | None:
    if not isinstance(args, PluginArgs):
        return args
    return {
        "apiVersion": API_VERSION,
        "kind": type(args).__name__,
        **args.model_dump(mode="json", exclude_none=True),
    }


class PluginConfig(StrictModel):
    """Arguments of one plugin."""

    name: str = ""
    args: Annotated[
        PluginArgs | dict[str, Any] | None,
        PlainValidator(_decode_args),
        PlainSerializer(_dump_args),
        Field(validate_default=True),
    ] = None
    """A model for in-tree plugins, the file's raw data for all others."""


class Profile(StrictModel):
    """A named set of plugins; pods choose it by ``spec.schedulerName``.

    Built from what the user enabled and disabled; the default plugins and the arguments of all
    enabled plugins are added at once.
    """

    scheduler_name: str = ""
    """``default-scheduler`` if it is the only profile and has no name."""
    percentage_of_nodes_to_score: Int32 | None = None
    """Wins over the global value, also as 0."""
    plugins: Annotated[Plugins, Field(validate_default=True)] = Plugins()
    """The effective sets; given those that the user wrote, the defaults are merged in."""
    plugin_config: Annotated[Listed[PluginConfig], Field(validate_default=True)] = ()
    """The user's arguments, then the defaults of all other enabled plugins, by name."""

    @field_validator("plugins")
    @classmethod
    def _merge_defaults(cls, plugins: Plugins) -> Plugins:
        return merge_plugins(plugins)

    @field_validator("plugin_config")
    @classmethod
    def _add_default_args(
        cls, configs: tuple[PluginConfig, ...], info: ValidationInfo
    ) -> tuple[PluginConfig, ...]:
        plugins = info.data.get("plugins", Plugins())
        defaults = default_args(plugins, [config.name for config in configs])
        return (
            *configs,
            *(PluginConfig(name=name, args=args) for name, args in defaults.items()),
        )

    def with_args(self, kind: type[PluginArgs], changes: Mapping[str, Any]) -> Self:
        """The profile with fields changed in the arguments of this kind, where it has any."""
        configs = tuple(
            config.model_copy(update={"args": config.args.model_copy(update=changes)})
            if isinstance(config.args, kind)
            else config
            for config in self.plugin_config
        )
        return self.model_copy(update={"plugin_config": configs})


class SchedulerConfiguration(StrictModel):
    """The complete configuration of a scheduler, with defaults."""

    parallelism: Int32 = 16
    """Concurrent work for one pod. Kept for compatibility: ksched decides on one thread."""
    leader_election: LeaderElection = LeaderElection()
    """Who schedules when several replicas run."""
    client_connection: ClientConnection = ClientConnection()
    """The API server and how hard it may be pushed."""
    enable_profiling: bool = True
    """Serve the debugging endpoints; they show no secrets and cost nothing until used."""
    enable_contention_profiling: bool = Field(
        default_factory=lambda data: bool(data.get("enable_profiling", True))
    )
    """Accepted, but locks are not profiled; follows ``enable_profiling`` unless set."""
    percentage_of_nodes_to_score: Int32 = 0
    """Stop looking for feasible nodes when this percentage of all nodes was found. 0 evaluates all
    nodes: that is cheap here and places better (kube-scheduler: adaptive)."""
    pod_initial_backoff_seconds: Int64 = 1
    """Seconds that a pod waits after its first failed attempt; doubles with every further one."""
    pod_max_backoff_seconds: Int64 = 10
    """Seconds at which that stops doubling."""
    profiles: Listed[Profile] = (Profile(scheduler_name=DEFAULT_SCHEDULER_NAME),)
    """At least one; all share one queue and one cache."""
    extenders: Listed[Extender] = ()
    """Called one after the other, ignorable ones last."""
    delay_cache_until_active: bool = False
    """Start watching only as a leader: a standby costs nothing, but takes over more slowly."""

    @field_validator("profiles")
    @classmethod
    def _name_the_only_profile(cls, profiles: tuple[Profile, ...]) -> tuple[Profile, ...]:
        if not profiles:
            return (Profile(scheduler_name=DEFAULT_SCHEDULER_NAME),)
        if len(profiles) == 1 and not profiles[0].scheduler_name:
            return (profiles[0].model_copy(update={"scheduler_name": DEFAULT_SCHEDULER_NAME}),)
        return profiles
