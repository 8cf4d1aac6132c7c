"""An extender in another language drives every verb (tests/extender_go)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
import trustme

from ksched.apiserver.http_listener import listening
from ksched.testing import cluster, make_node, make_pod
from ksched.testing.harness import Cluster
from lab.control_plane import free_ports

pytestmark = pytest.mark.real_time

POLICY = {
    "failed": {"n1": "no fpga"},
    "unresolvable": {"n2": "no slot"},
    "scores": {"n3": 3, "n4": 9, "n5": 5},
    "preempt": ["n4", "n5"],
}
EVERYTHING = {
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "weight": 10,
    "bindVerb": "bind",
    "preemptVerb": "preempt",
}
CAPABLE = pytest.mark.parametrize(
    "is_capable", [False, True], ids=["whole nodes", "names of nodes"]
)


def config(extender: Any, is_capable: bool, **more: Any) -> dict[str, Any]:
    one = {
        "urlPrefix": f"http://{extender.address}/scheduler",
        "nodeCacheCapable": is_capable,
        **EVERYTHING,
        **more,
    }
    return {"extenders": [one]}


async def until(c: Cluster, done: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not done():
            await c.settle()


@CAPABLE
async def test_pods_are_filtered_scored_and_bound(go_extender, is_capable) -> None:
    (port,) = free_ports(1)
    server = f"http://127.0.0.1:{port}"
    with go_extender(POLICY, "-server", server, "-token", "go-extender") as extender:
        nodes = [make_node(f"n{number}").capacity(cpu="3") for number in range(1, 6)]
        async with (
            cluster(nodes, config=config(extender, is_capable)) as c,
            listening(c.server, port),
        ):
            names = [f"web-{number}" for number in range(6)]
            await c.create(*(make_pod(name).req(cpu="1") for name in names))
            await until(c, lambda: all(c.bound(name) for name in names))

            assert sorted(c.bound(name) or "" for name in names) == ["n4"] * 3 + ["n5"] * 3
            binders = {one.user for one in c.requests if one.path.endswith("/binding")}
            assert binders == {"go-extender"}
        assert len(extender.requests("filter")) == len(extender.requests("bind")) == 6
        (first, *_) = map(json.loads, extender.requests("filter"))
        assert (first["NodeNames"] is None) is not is_capable


@CAPABLE
async def test_preemption_happens_where_the_extender_lets_it(go_extender, is_capable) -> None:
    (port,) = free_ports(1)
    flags = ("-server", f"http://127.0.0.1:{port}")
    with go_extender({"preempt": ["n4", "n5"]}, *flags) as extender:
        nodes = [make_node(f"n{number}").capacity(cpu="1") for number in range(1, 6)]
        settings = config(extender, is_capable)
        async with cluster(nodes, config=settings, kubelet=True) as c, listening(c.server, port):
            for number in range(1, 6):
                victim = make_pod(f"low-{number}").req(cpu="1").node(f"n{number}").to_dict()
                victim["spec"]["terminationGracePeriodSeconds"] = 1
                await c.create(victim)
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            await c.create({**kind, "metadata": {"name": "high"}, "value": 9})
            vip = make_pod("vip").req(cpu="1").to_dict()
            vip["spec"]["priorityClassName"] = "high"
            await c.create(vip)
            await until(c, lambda: c.bound("vip"))

            assert c.bound("vip") in ("n4", "n5")
            left = [number for number in range(1, 6) if c.exists(f"low-{number}")]
            assert len(left) == 4
            assert {1, 2, 3} <= set(left)
        question = json.loads(extender.requests("preempt")[0])
        offered = question["NodeNameToMetaVictims" if is_capable else "NodeNameToVictims"]
        assert sorted(offered) == [f"n{number}" for number in range(1, 6)]


async def test_reasons_reach_the_user(go_extender) -> None:
    with go_extender(POLICY) as extender:
        async with cluster(2, config=config(extender, True)) as c:
            await c.create(make_pod("web"))
            await until(c, lambda: c.message("web"))

            assert c.message("web").startswith("0/2 nodes are available: 1 no fpga, 1 no slot.")


async def test_https_with_certificates_on_both_sides(go_extender, tmp_path) -> None:
    ca = trustme.CA()
    server, client = ca.issue_cert("extender.svc"), ca.issue_cert("ksched@example.org")
    files = {"ca": tmp_path / "ca.crt", "cert": tmp_path / "tls.crt", "key": tmp_path / "tls.key"}
    ca.cert_pem.write_to_path(str(files["ca"]))
    server.cert_chain_pems[0].write_to_path(str(files["cert"]))
    server.private_key_pem.write_to_path(str(files["key"]))
    flags = (f"-tls-cert={files['cert']}", f"-tls-key={files['key']}", f"-client-ca={files['ca']}")
    tls = {
        "caFile": str(files["ca"]),
        "serverName": "extender.svc",
        "certData": base64.b64encode(client.cert_chain_pems[0].bytes()).decode(),
        "keyData": base64.b64encode(client.private_key_pem.bytes()).decode(),
    }
    with go_extender(POLICY, *flags) as extender:
        url = f"https://{extender.address}/scheduler"
        more = {"urlPrefix": url, "enableHTTPS": True, "tlsConfig": tls, "bindVerb": ""}
        async with cluster(4, config=config(extender, False, **more)) as c:
            await c.create(make_pod("web"))
            await until(c, lambda: c.bound("web"))

            assert c.bound("web") == "n4"
        assert len(extender.requests("prioritize")) == 1
