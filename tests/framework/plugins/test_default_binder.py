"""plugins/defaultbinder/default_binder.go: Bind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ksched.errors import ApiError, Conflict, Unavailable
from ksched.framework import SUCCESS, CycleState, Handle, Status, error
from ksched.framework.plugins.default_binder import DefaultBinder
from ksched.testing.builders import make_pod
from ksched.testing.plugin_runner import PluginBench


class RecordingClient:
    def __init__(self, answer: ApiError | None = None) -> None:
        self.bound: list[tuple[str, str, str, str]] = []
        self._answer = answer

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        if self._answer is not None:
            raise self._answer
        self.bound.append((namespace, name, uid, node_name))


async def _bind(client: RecordingClient) -> Status:
    handle = cast(Handle, SimpleNamespace(client=client))
    pod = PluginBench(nodes=[]).pod_info(make_pod("web", namespace="shop").uid("u-1").obj())
    return await DefaultBinder(handle).bind(CycleState(), pod, "n1")


async def test_the_pod_is_bound_by_identity_not_only_by_name() -> None:
    client = RecordingClient()

    assert await _bind(client) == SUCCESS
    assert client.bound == [("shop", "web", "u-1", "n1")]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        pytest.param(
            Conflict(409, "Conflict", 'pod web is already assigned to node "n2"'),
            error('409 Conflict: pod web is already assigned to node "n2"'),
            id="somebody was faster",
        ),
        pytest.param(
            Unavailable(503, "", "try later"), error("503: try later"), id="server is away"
        ),
    ],
)
async def test_a_failure_of_the_api_server_is_an_error_with_its_text(
    answer: ApiError, status: Status
) -> None:
    assert await _bind(RecordingClient(answer)) == status


async def test_other_exceptions_are_left_to_the_runtime() -> None:
    class Broken(RecordingClient):
        async def bind(self, *identity: Any) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await _bind(Broken())
