"""Paths on the API server."""

from __future__ import annotations

import pytest

from ksched.api.resources import (
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    is_path_of_object,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(PODS.path("n", "p"), True, id="of a namespace"),
        pytest.param(PODS.path("n", "p") + "?pretty=true", True, id="with a query"),
        pytest.param(NODES.path("", "n"), True, id="of the cluster"),
        pytest.param(NAMESPACES.path("", "n"), True, id="a namespace itself"),
        pytest.param(LEASES.path("kube-system", "l"), True, id="of a group"),
        pytest.param(PODS.path(), False, id="all of a kind"),
        pytest.param(PODS.path("n"), False, id="all of a namespace"),
        pytest.param(NODES.path(), False, id="all nodes"),
        pytest.param(NAMESPACES.path() + "?limit=5", False, id="all namespaces"),
        pytest.param(RESOURCE_CLAIMS.path("n"), False, id="all of a group's kind"),
        pytest.param(PODS.path("n", "p", "log"), False, id="a subresource, which may be long"),
        pytest.param("/version", False, id="no kind"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_path_of_one_object(path: str, expected: bool) -> None:
    assert is_path_of_object(path) is expected
