"""What ``bench.sharing`` asks for and counts."""

from __future__ import annotations

from bench.sharing import refused, shared_pod, small_node


def test_pods_name_the_schedulers_in_turn() -> None:
    names = [shared_pod(index, 2)["spec"]["schedulerName"] for index in range(3)]

    assert names == ["ksched-0", "ksched-1", "ksched-0"]


def test_a_node_has_room_for_four_and_the_others_are_refused() -> None:
    assert small_node(0)["status"]["allocatable"]["cpu"] == "4"

    assert refused(iter(["a"] * 4 + ["b"] * 3)) == 0
    assert refused(iter(["a"] * 6 + ["b"] * 5)) == 3
