"""Resource use without the pods below a priority."""

from __future__ import annotations

from ksched.cache.cache import SchedulerCache
from ksched.cache.listers import Listers
from ksched.framework.node_columns import REQUESTED
from ksched.framework.plugins.default_preemption.evictable import Evictable
from ksched.framework.time_slices import TimeSlice
from ksched.groups.registry import Groups
from ksched.groups.wholeness import Wholeness
from ksched.testing import make_node, make_pod
from lab.bulky import bulky_node


async def test_resources_that_no_pod_requests_take_no_room() -> None:
    cache = SchedulerCache(lambda: 0.0)
    cache.add_node(make_node("n1").capacity(cpu="4").obj())
    cache.add_node(bulky_node("n2", resources=800).obj())
    none_of_it = make_pod("low").req({"cpu": "1", "example.com/r500": "0"}).node("n1").obj()
    cache.add_pod(cache.pod_info(none_of_it))
    cache.add_pod(cache.pod_info(make_pod("high").req(cpu="2").priority(10).node("n1").obj()))
    table = cache.update_snapshot().table
    evictable = Evictable(5, table, Wholeness(Groups(Listers())))
    await evictable.catch_up(TimeSlice(lambda: 0.0))
    lines = len(evictable.staying)
    assert lines < REQUESTED + 10
    cpu = REQUESTED + table.axis.find("cpu")
    assert evictable.staying[cpu, table.rows["n1"]] == 2000

    name = "example.com/r700"
    taken = make_pod("late").req({name: "1"}).priority(10).node("n2").obj()
    cache.add_pod(cache.pod_info(taken))
    cache.update_snapshot()
    await evictable.catch_up(TimeSlice(lambda: 0.0))
    line = REQUESTED + table.axis.find(name)
    assert evictable.staying[line, table.rows["n2"]] == 1
    assert evictable.staying[cpu, table.rows["n1"]] == 2000
