"""Binding cycles that fail: the place is given back, others may have it, the pod tries again.

schedule_one.go: bindingCycle, handleBindingCycleError (v1.36).

Covers ``ksched.framework.runtime.reserve_to_post_bind``, ``ksched.queue.activations`` and
``ksched.scheduling.binding_tasks`` too.
"""

from __future__ import annotations

from typing import Any

import pytest

from ksched.apiserver.faults import Fault, Faults, Rule
from ksched.apiserver.status_errors import StatusError
from ksched.framework import SKIP, SUCCESS, error, unschedulable
from ksched.queue.places import Place
from ksched.scheduling.binding_cycle import MAX_CONCURRENT_BINDS
from ksched.testing import NEVER, After, Call, Checkers, FakePlugin, PermitGate, cluster, make_pod
from ksched.testing.harness import Cluster

BIND = "POST /api/v1/namespaces/default/pods/web/binding"
ONLY_MINE = {"bind": {"disabled": [{"name": "*"}], "enabled": [{"name": "Last"}]}}


def reservers(journal: list[Call]) -> list[FakePlugin]:
    return [FakePlugin(name, journal=journal, reserve=SUCCESS) for name in ("A", "B")]


def undone(journal: list[Call], pod: str = "default/web") -> list[str]:
    """The plugins that were asked to undo, in order; each must have been told pod and node."""
    calls = [call for call in journal if call.method == "unreserve"]
    assert {(call.pod, call.node) for call in calls} <= {(pod, "n1")}
    return [call.plugin for call in calls]


def faulty_bind(**fault: Any) -> Faults:
    return Faults([Rule(Fault(**fault), verb="create", resource="pods/binding")])


def counts(c: Cluster, pod: str) -> tuple[int, int, int]:
    queued = c.queued(pod)
    return queued.attempts, queued.unschedulable_count, queued.consecutive_errors_count


async def create_two(c: Cluster) -> None:
    """``other`` is too big for what ``web`` leaves: it must be woken when ``web`` goes."""
    await c.create(make_pod("web").req(cpu="3"), make_pod("other").req(cpu="3").scheduler("quiet"))


PROFILES: list[dict[str, Any]] = [
    {"schedulerName": "default-scheduler"},
    # What goes wrong goes wrong for ``web`` only.
    {
        "schedulerName": "quiet",
        "plugins": {"multiPoint": {"disabled": [{"name": name} for name in ("A", "B", "Last")]}},
    },
]


@pytest.mark.parametrize(
    ("last", "reason", "message"),
    [
        pytest.param(
            {"pre_bind": After(1, unschedulable("no volume"))},
            "Unschedulable",
            "no volume",
            id="pre_bind rejects",
        ),
        pytest.param(
            {"pre_bind": After(1, error("disk on fire"))},
            "SchedulerError",
            'running PreBind plugin "Last": disk on fire',
            id="pre_bind fails",
        ),
        pytest.param(
            {"pre_bind_pre_flight": After(1, error("no plan")), "pre_bind": SUCCESS},
            "SchedulerError",
            'running PreBindPreFlight plugin "Last": no plan',
            id="pre-flight fails",
        ),
    ],
)
async def test_pre_bind_that_fails_is_undone_and_retried_after_the_error_backoff(
    last: dict[str, Any], reason: str, message: str
) -> None:
    journal: list[Call] = []
    plugins = [*reservers(journal), FakePlugin("Last", journal=journal, reserve=SUCCESS, **last)]
    async with cluster(nodes=1, config={"profiles": PROFILES}, plugins=plugins) as c:
        checkers = Checkers(c)
        await create_two(c)
        await c.settle()
        assert c.place("other") is Place.UNSCHEDULABLE
        await c.advance(1)
        checkers.check_books()
        assert undone(journal) == ["Last", "B", "A"]
        condition = c.condition("web")
        assert condition is not None
        assert (condition["status"], condition["reason"]) == ("False", reason)
        assert c.message("web") == message
        assert [(event.reason, event.note) for event in c.events("web")] == [
            ("FailedScheduling", message)
        ]
        assert c.place("web") is Place.BACKOFF
        assert counts(c, "web") == (1, 0, 1)
        assert c.bound("other") == "n1"
        assert "AssignedPodDelete" in [step.cause for step in c.story("other")]
        assert len(c.scheduler.waiting) == 0


async def test_bind_failures_have_the_plugin_and_the_text_in_the_condition() -> None:
    last = FakePlugin("Last", bind=error("wrong key"))
    config = {"profiles": [{"plugins": ONLY_MINE}]}
    async with cluster(nodes=1, config=config, plugins=[last]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web"))
        await c.settle()
        assert c.message("web") == 'running Bind plugin "Last": wrong key'
        last.answers["bind"] = unschedulable("busy")
        await c.advance(2)
        assert c.message("web") == "busy"
        assert counts(c, "web") == (2, 0, 2)
        last.answers["bind"] = SKIP
        await c.advance(3)
        assert c.message("web") == "every Bind plugin skipped the pod"
        checkers.check_books()


async def test_the_first_bind_plugin_that_does_not_skip_binds() -> None:
    custom = FakePlugin("Custom", bind=SKIP)
    config = {
        "profiles": [
            {
                "plugins": {
                    "bind": {
                        "enabled": [{"name": "Custom"}, {"name": "DefaultBinder"}],
                        "disabled": [{"name": "*"}],
                    }
                }
            }
        ]
    }
    async with cluster(nodes=1, config=config, plugins=[custom]) as c:
        await c.create(make_pod("web"))
        await c.settle()
        assert c.bound("web") == "n1"
        assert len(custom.calls("bind")) == 1


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(
            StatusError(409, "Conflict", "the object has been modified"),
            f"409 Conflict: {BIND}: the object has been modified",
            id="409",
        ),
        pytest.param(
            StatusError(404, "NotFound", 'pods "web" not found'),
            f'404 NotFound: {BIND}: pods "web" not found',
            id="404",
        ),
        pytest.param(
            StatusError(500, "InternalError", "etcdserver: no leader"),
            f"500 InternalError: {BIND}: etcdserver: no leader",
            id="500",
        ),
        pytest.param(
            StatusError(403, "Forbidden", "not today"),
            f"403 Forbidden: {BIND}: not today",
            id="403",
        ),
    ],
)
async def test_a_bind_that_the_server_refuses_is_undone_and_retried(
    answer: StatusError, text: str
) -> None:
    journal: list[Call] = []
    async with cluster(nodes=1, faults=faulty_bind(answer=answer), plugins=reservers(journal)) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.settle()
        checkers.check_books()
        assert undone(journal) == ["B", "A"]
        condition = c.condition("web")
        assert condition is not None
        assert condition["reason"] == "SchedulerError"
        assert c.message("web") == f'running Bind plugin "DefaultBinder": {text}'
        assert c.place("web") is Place.BACKOFF
        assert counts(c, "web") == (1, 0, 1)
        await c.advance(2)
        assert c.bound("web") == "n1"
        checkers.check_books()
        assert [event.reason for event in c.events("web")] == ["FailedScheduling", "Scheduled"]


async def test_a_pod_that_somebody_else_bound_is_left_where_it_is() -> None:
    journal: list[Call] = []
    gate = PermitGate(journal=journal)
    async with cluster(nodes=1, plugins=[*reservers(journal), gate]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.settle()
        await c.add_nodes(1)
        await c.bind("web", "n2")
        gate.allow()
        await c.settle()
        checkers.check_books()
        assert c.bound("web") == "n2"
        assert undone(journal) == ["B", "A"]
        assert c.place("web") is Place.ABSENT
        # It has a node: nobody wants to read that our attempt failed.
        assert c.events("web") == []


async def test_a_pod_recreated_under_the_same_name_is_not_bound_by_the_old_attempt() -> None:
    gate = PermitGate()
    async with cluster(nodes=1, plugins=[gate]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.settle()
        # Both changes reach the scheduler together, after it has sent the bind.
        gate.allow()
        await c.delete("web")
        await c.create(make_pod("web").req(cpu="1"))
        await c.settle()
        assert gate.held() == ["default/web"]
        gate.allow()
        await c.settle()
        assert c.bound("web") == "n1"
        checkers.check_books()


async def test_the_uid_keeps_a_late_bind_from_the_successor() -> None:
    faults = faulty_bind(delay_seconds=1.0)
    async with cluster(nodes=1, faults=faults) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.settle()
        await c.delete("web")
        await c.create(make_pod("web").req(cpu="1").scheduler("nobody"))
        await c.advance(2)
        assert c.bound("web") is None
        assert [audit.code for audit in c.requests if audit.path.endswith("/binding")] == [409]
        checkers.check_books()


async def test_a_bind_whose_answer_is_lost_keeps_its_place_and_counts_as_done() -> None:
    journal: list[Call] = []
    faults = faulty_bind(lose_response=True)
    async with cluster(nodes=1, faults=faults, plugins=reservers(journal)) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"), make_pod("other").req(cpu="3"))
        await c.settle()
        assert c.bound("web") == "n1"
        assert c.bound("other") is None
        assert undone(journal) == []
        assert [event.reason for event in c.events("web")] == ["Scheduled"]
        assert len([audit for audit in c.requests if audit.path.endswith("/web/binding")]) == 1
        checkers.check_books()


async def test_a_bind_that_never_arrived_is_undone_when_that_is_known() -> None:
    journal: list[Call] = []
    faults = faulty_bind(hang=True)
    async with cluster(nodes=1, faults=faults, plugins=reservers(journal)) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.advance(29)
        assert c.scheduler.cache.is_assumed(c.uid("web"))
        await c.advance(1)
        assert undone(journal) == ["B", "A"]
        assert counts(c, "web") == (1, 0, 1)
        await c.advance(2)
        assert c.bound("web") == "n1"
        checkers.check_books()


async def test_a_place_is_kept_while_nobody_can_say_whether_the_bind_happened() -> None:
    """An outage swallows the answer, the watch, and then every question about it."""
    down = StatusError(503, "ServiceUnavailable", "try later")
    slow = FakePlugin("Slow", pre_bind=After(5, SUCCESS))
    async with cluster(nodes=1, plugins=[slow]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"), make_pod("other").req(cpu="3"))
        await c.advance(1)
        c.faults.rules += [
            Rule(Fault(lose_response=True), verb="create", resource="pods/binding"),
            Rule(Fault(answer=down), verb="get", resource="pods", times=None),
            Rule(Fault(answer=down), verb="list", resource="pods", times=None),
            Rule(Fault(answer=down), verb="watch", resource="pods", times=None),
        ]
        c.server.drop_watches()
        await c.advance(300)
        assert c.bound("web") == "n1"
        assert c.scheduler.cache.is_assumed(c.uid("web"))
        c.faults.rules.clear()
        await c.advance(100)
        assert [event.reason for event in c.events("web")] == ["Scheduled"]
        assert c.bound("other") is None
        checkers.check_books()


async def test_a_server_that_knows_no_roles_yet_is_asked_again() -> None:
    """A crash swallows the answer and the watch, and the new server at first forbids to look."""
    forbidden = StatusError(403, "Forbidden", "who are you")
    slow = FakePlugin("Slow", pre_bind=After(5, SUCCESS))
    async with cluster(nodes=1, plugins=[slow]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"), make_pod("other").req(cpu="3"))
        await c.advance(1)
        c.faults.rules += [
            Rule(Fault(lose_response=True), verb="create", resource="pods/binding"),
            Rule(Fault(answer=forbidden), verb="get", resource="pods", times=3),
            Rule(Fault(delay_seconds=60), verb="watch", resource="pods", times=None),
        ]
        c.server.drop_watches()
        await c.advance(8)
        assert [event.reason for event in c.events("web")] == ["Scheduled"]
        assert len([audit for audit in c.requests if audit.path.endswith("/web/binding")]) == 1
        assert c.bound("other") is None
        checkers.check_books()


async def test_a_scheduler_that_may_not_look_gives_the_place_back_in_the_end() -> None:
    journal: list[Call] = []
    forbidden = StatusError(403, "Forbidden", "not you")
    async with cluster(nodes=1, plugins=reservers(journal)) as c:
        c.faults.rules += [
            Rule(Fault(answer=forbidden), verb="create", resource="pods/binding"),
            Rule(Fault(answer=forbidden), verb="get", resource="pods", times=None),
        ]
        await c.create(make_pod("web").req(cpu="3"))
        await c.advance(8)
        assert undone(journal) == []
        await c.advance(4)
        assert undone(journal) == ["B", "A"]
        assert c.bound("web") == "n1"


async def test_a_pod_deleted_between_cycle_and_bind_leaves_nothing_behind() -> None:
    journal: list[Call] = []
    faults = faulty_bind(delay_seconds=1.0)
    async with cluster(nodes=1, faults=faults, plugins=reservers(journal)) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"), make_pod("other").req(cpu="3"))
        await c.settle()
        await c.delete("web")
        await c.settle()
        assert c.bound("other") == "n1"
        await c.advance(2)
        checkers.check_books()
        assert undone(journal) == ["B", "A"]
        assert c.place("web") is Place.ABSENT
        assert c.events("web") == []


async def test_a_node_deleted_before_the_bind_fails_the_attempt() -> None:
    journal: list[Call] = []
    slow = FakePlugin("Slow", pre_bind=After(5, SUCCESS))
    async with cluster(nodes=1, plugins=[*reservers(journal), slow]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web").req(cpu="3"))
        await c.advance(1)
        await c.delete_node("n1")
        await c.advance(4)
        checkers.check_books()
        assert undone(journal) == ["B", "A"]
        assert c.message("web") == 'node "n1" was removed before the pod was bound'
        assert not [audit for audit in c.requests if audit.path.endswith("/binding")]
        await c.add_nodes(2)
        await c.advance(10)
        assert c.bound("web") is not None


async def test_post_bind_and_activation_follow_a_bind() -> None:
    def remember(state: Any, pod: Any, node_name: str) -> object:
        state.pods_to_activate.update({other.key: other for other in parked})
        return SUCCESS

    parked: list[Any] = []
    moody = FakePlugin(
        "Moody",
        filter=lambda state, pod, node: unschedulable("no") if pod.name == "late" else SUCCESS,
        events_to_register=[],
        pre_bind=remember,
        post_bind=None,
    )
    async with cluster(nodes=1, plugins=[moody]) as c:
        await c.create(make_pod("late"))
        await c.settle()
        late = c.scheduler.pending.get(c.uid("late"))
        assert late is not None
        parked.append(late)
        await c.create(make_pod("web"))
        await c.settle()
        assert [call.pod for call in moody.calls("post_bind")] == ["default/web"]
        assert [step.cause for step in c.story("late")].count("ForceActivate") == 1


async def test_pods_wait_for_one_of_the_places_to_bind() -> None:
    """However many pods are placed, only so many binds are on their way at once."""
    faults = Faults(
        [Rule(Fault(delay_seconds=1.0), verb="create", resource="pods/binding", times=None)]
    )
    async with cluster(nodes=10, faults=faults) as c:
        await c.create(*(make_pod(f"p{number}") for number in range(200)))
        await c.settle()
        assert len(faults.fired) == MAX_CONCURRENT_BINDS
        await c.advance(1.5)
        assert len(faults.fired) == 2 * MAX_CONCURRENT_BINDS


async def test_events_wait_while_the_api_server_has_many_binds_to_answer() -> None:
    faults = Faults(
        [Rule(Fault(delay_seconds=3.0), verb="create", resource="pods/binding", times=None)]
    )
    async with cluster(nodes=10, faults=faults) as c:
        stuck = make_pod("stuck").req(cpu="1000")
        await c.create(*(make_pod(f"p{number}") for number in range(MAX_CONCURRENT_BINDS)), stuck)
        await c.advance(2.0)
        assert c.condition("stuck") is not None
        assert c.events("stuck") == []
        await c.advance(1.5)
        assert [event.reason for event in c.events("stuck")] == ["FailedScheduling"]


async def test_events_do_not_wait_for_binds_that_only_wait_for_our_rate_limit() -> None:
    slow = {"clientConnection": {"qps": 10, "burst": 10}}
    async with cluster(nodes=10, config=slow) as c:
        await c.create(*(make_pod(f"p{number}") for number in range(100)))
        await c.advance(3.0)
        bound = [f"p{number}" for number in range(100) if c.bound(f"p{number}")]
        assert 0 < len(bound) < 50
        assert c.events(bound[0])


async def test_a_plugin_that_never_finishes_pre_bind_is_cut_off() -> None:
    journal: list[Call] = []
    stuck = FakePlugin("Stuck", pre_bind=NEVER)
    stuck.timeout_seconds = 7
    async with cluster(nodes=1, plugins=[*reservers(journal), stuck]) as c:
        checkers = Checkers(c)
        await c.create(make_pod("web"))
        await c.advance(7)
        assert c.message("web") == 'running PreBind plugin "Stuck": no answer within 7s'
        assert undone(journal) == ["B", "A"]
        checkers.check_books()
