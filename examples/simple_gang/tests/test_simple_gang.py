import pytest
from simple_gang import GANG, SIZE, SimpleGang

from ksched.testing import make_pod

pytestmark = pytest.mark.cluster(plugins={"SimpleGang": SimpleGang})


def member(name, size="3", namespace="default"):
    return make_pod(name, namespace).label({GANG: "crew", SIZE: size}).req(cpu="3")


async def test_members_start_together(cluster):
    async with cluster(3) as c:
        await c.create(member("a"), member("b"), make_pod("passer-by"))
        await c.advance(5)
        assert [c.bound(name) for name in "ab"] == [None, None]
        assert c.bound("passer-by")
        await c.create(member("c"))
        await c.advance(1)
        assert {c.bound(name) for name in "abc"} == {"n1", "n2", "n3"}


async def test_a_gang_that_does_not_fit_gives_its_places_back(cluster):
    async with cluster(2) as c:
        await c.create(*(member(name) for name in "abc"))
        await c.advance(5)
        await c.create(make_pod("big").req(cpu="3"))
        await c.advance(5)
        assert c.bound("big") is None  # the gang holds both nodes
        await c.advance(60)
        assert [c.bound(name) for name in "abc"] == [None, None, None]
        assert c.bound("big")


async def test_gangs_of_one_name_in_two_namespaces_are_two(cluster):
    async with cluster(4) as c:
        await c.create({"kind": "Namespace", "metadata": {"name": "other"}})
        await c.create(member("a", "2"), member("b", "2", "other"))
        await c.advance(5)
        assert c.bound("a") is None
        assert c.bound("other/b") is None


@pytest.mark.parametrize("size", ["0", "many"])
async def test_a_size_that_is_none_is_told(cluster, size):
    async with cluster(1) as c:
        pod = make_pod("a").to_dict()
        pod["metadata"]["labels"] = {GANG: "crew", SIZE: size}
        await c.create(pod)
        await c.settle()
        assert "is no size" in c.message("a")
