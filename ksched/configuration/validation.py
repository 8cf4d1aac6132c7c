"""Validation of a configuration: all problems at once, with kube-scheduler's messages.

Follows pkg/scheduler/apis/config/validation/validation.go (v1.36) in rules and order. Two rules
are wider here: locks other than leases exist, and an extender may manage a resource whose name has
no domain (a warning), because files from the time before that rule do.
"""

from __future__ import annotations

from typing import Final

from ksched.api.label_syntax import qualified_name_problems
from ksched.api.pod_resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    PODS,
    is_extended_resource_name,
)
from ksched.configuration.args_validation import find_args_problems
from ksched.configuration.durations import format_duration
from ksched.configuration.extenders import Extender
from ksched.configuration.field_errors import duplicate, invalid, required, unsupported
from ksched.configuration.model import (
    ClientConnection,
    LeaderElection,
    Profile,
    SchedulerConfiguration,
)
from ksched.configuration.plugin_args import ARGS
from ksched.configuration.strict_model import API_VERSION
from ksched.errors import ConfigError

# Renewals are retried every retryPeriod with up to this much jitter; a deadline that is not longer
# leaves no room for a second attempt (client-go/tools/leaderelection, v1.36).
JITTER_FACTOR: Final = 1.2

RESOURCE_LOCKS: Final = (
    "leases",
    "endpoints",
    "configmaps",
    "endpointsleases",
    "configmapsleases",
)

REMOVED_PLUGINS: Final = frozenset({"CinderLimits"})
_REMOVED: Final = (
    f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{API_VERSION}")'
)

_NATIVE_RESOURCES: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS, "storage"})


def validate(configuration: SchedulerConfiguration) -> None:
    """Raise ``ConfigError`` with everything that is wrong with a configuration built in Python."""
    if problems := find_problems(configuration):
        raise ConfigError(problems)


def find_problems(configuration: SchedulerConfiguration) -> list[str]:
    """Everything that is wrong with a configuration; empty if it can be used."""
    problems = _client_connection(configuration.client_connection)
    problems += _leader_election(configuration.leader_election)
    if configuration.parallelism <= 0:
        detail = "should be an integer value greater than zero"
        problems.append(invalid("parallelism", configuration.parallelism, detail))
    problems += _profiles(configuration.profiles)
    problems += _percentage("percentageOfNodesToScore", configuration.percentage_of_nodes_to_score)
    initial, longest = (
        configuration.pod_initial_backoff_seconds,
        configuration.pod_max_backoff_seconds,
    )
    if initial <= 0:
        problems.append(invalid("podInitialBackoffSeconds", initial, "must be greater than 0"))
    if longest < initial:
        detail = "must be greater than or equal to PodInitialBackoffSeconds"
        problems.append(invalid("podMaxBackoffSeconds", longest, detail))
    return problems + _extenders(configuration.extenders)


def find_warnings(configuration: SchedulerConfiguration) -> list[str]:
    """Return what is valid but probably unintended."""
    return [
        f"extenders[{i}].managedResources[{j}].name: {resource.name!r} has no domain, "
        "extended resources are named like example.com/foo"
        for i, extender in enumerate(configuration.extenders)
        for j, resource in enumerate(extender.managed_resources)
        if "/" not in resource.name
    ]


def _client_connection(connection: ClientConnection) -> list[str]:
    if connection.burst < 0:
        return [invalid("clientConnection.burst", connection.burst, "must be non-negative")]
    return []


def _leader_election(election: LeaderElection) -> list[str]:
    if not election.leader_elect:
        return []
    lease, renew, retry = (
        election.lease_duration_seconds,
        election.renew_deadline_seconds,
        election.retry_period_seconds,
    )
    problems = [
        invalid(f"leaderElection.{field}", format_duration(seconds), "must be greater than zero")
        for field, seconds in (
            ("leaseDuration", lease),
            ("renewDeadline", renew),
            ("retryPeriod", retry),
        )
        if seconds <= 0
    ]
    if lease <= renew:
        detail = "must be greater than `RenewDeadline`"
        problems.append(invalid("leaderElection.leaseDuration", format_duration(lease), detail))
    if 0 < renew <= retry * JITTER_FACTOR:
        detail = f"must be greater than retryPeriod*JitterFactor ({JITTER_FACTOR})"
        problems.append(invalid("leaderElection.renewDeadline", format_duration(renew), detail))
    if election.resource_lock not in RESOURCE_LOCKS:
        path = "leaderElection.resourceLock"
        problems.append(unsupported(path, election.resource_lock, RESOURCE_LOCKS))
    return problems


def _percentage(path: str, percentage: int | None) -> list[str]:
    if percentage is not None and not 0 <= percentage <= 100:
        return [invalid(path, percentage, "not in valid range [0-100]")]
    return []


# -- profiles -----------------------------------------------------------------------------------


def _profiles(profiles: tuple[Profile, ...]) -> list[str]:
    if not profiles:
        return [required("profiles")]
    problems: list[str] = []
    names: set[str] = set()
    for index, profile in enumerate(profiles):
        path = f"profiles[{index}]"
        if not profile.scheduler_name:
            problems.append(required(f"{path}.schedulerName"))
        problems += _percentage(
            f"{path}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score
        )
        problems += _removed_plugins(path, profile)
        problems += _plugin_config(f"{path}.pluginConfig", profile)
        if profile.scheduler_name and profile.scheduler_name in names:
            problems.append(duplicate(f"{path}.schedulerName", profile.scheduler_name))
        names.add(profile.scheduler_name)
    return problems + _queue_sort(profiles)


def _removed_plugins(path: str, profile: Profile) -> list[str]:
    return [
        invalid(f"{path}.plugins.{point}.enabled[{index}]", plugin.name, _REMOVED)
        for point, plugin_set in profile.plugins.items()
        for index, plugin in enumerate(plugin_set.enabled)
        if plugin.name in REMOVED_PLUGINS
    ]


def _plugin_config(path: str, profile: Profile) -> list[str]:
    problems: list[str] = []
    seen: set[str] = set()
    for index, config in enumerate(profile.plugin_config):
        at = f"{path}[{index}]"
        if config.name in seen:
            problems.append(duplicate(at, config.name))
        seen.add(config.name)
        if config.name in REMOVED_PLUGINS:
            problems.append(invalid(at, config.name, _REMOVED))
        elif config.name in ARGS:
            if isinstance(config.args, ARGS[config.name]):
                problems += find_args_problems(config.args, f"{at}.args")
            else:
                problems.append(invalid(f"{at}.args", config.args, "has to match plugin args"))
    return problems


def _queue_sort(profiles: tuple[Profile, ...]) -> list[str]:
    """There is one queue, so every profile must sort it alike."""
    problems: list[str] = []
    first, *others = profiles
    sort = first.plugins.queue_sort
    if len(sort.enabled) > 1:
        path, detail = (
            "profiles[0].plugins.queueSort.enabled",
            "only one queue sort plugin can be enabled",
        )
        problems.append(invalid(path, len(sort.enabled), detail))
    name = sort.enabled[0].name if sort.enabled else ""
    args = next((c.args for c in first.plugin_config if name and c.name == name), None)
    for index, profile in enumerate(others, start=1):
        path = f"profiles[{index}]"
        if profile.plugins.queue_sort != sort:
            detail = "must be the same for all profiles"
            problems.append(
                invalid(f"{path}.plugins.queueSort", profile.plugins.queue_sort, detail)
            )
        for position, config in enumerate(profile.plugin_config):
            if name and config.name == name and config.args != args:
                at, detail = (
                    f"{path}.pluginConfig[{position}].args",
                    "queueSort must be the same for all profiles",
                )
                problems.append(invalid(at, config.args, detail))
    return problems


# -- extenders ----------------------------------------------------------------------------------


def _extenders(extenders: tuple[Extender, ...]) -> list[str]:
    problems: list[str] = []
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        path = f"extenders[{index}]"
        if not extender.url_prefix:
            problems.append(required(f"{path}.urlPrefix"))
        if extender.prioritize_verb and extender.weight <= 0:
            detail = "must have a positive weight applied to it"
            problems.append(invalid(f"{path}.weight", extender.weight, detail))
        for position, resource in enumerate(extender.managed_resources):
            at = f"{path}.managedResources[{position}].name"
            problems += _managed_resource(at, resource.name)
            if resource.name in managed:
                detail = "duplicate extender managed resource name"
                problems.append(invalid(at, resource.name, detail))
            managed.add(resource.name)
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        found = f"found {binders} extenders implementing bind"
        problems.append(invalid("extenders", found, "only one extender can implement bind"))
    return problems


def _managed_resource(path: str, name: str) -> list[str]:
    if broken := qualified_name_problems(name):
        return [invalid(path, name, problem) for problem in broken]
    is_native = name in _NATIVE_RESOURCES or name.startswith((HUGEPAGES_PREFIX, "requests."))
    if is_native or ("/" in name and not is_extended_resource_name(name)):
        return [invalid(path, name, "is an invalid extended resource name")]
    return []
