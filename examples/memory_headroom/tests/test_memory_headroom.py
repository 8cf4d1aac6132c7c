from memory_headroom import MemoryHeadroom

from ksched.testing import make_node, make_pod
from ksched.testing.plugin_runner import run_score

PLUGINS = {"MemoryHeadroom": MemoryHeadroom}


def node(name, memory="10Gi"):
    return make_node(name).capacity(cpu="100", memory=memory)


def test_what_would_stay_free_counts():
    nodes = [node("small").obj(), node("large", "100Gi").obj(), node("tiny", "1Gi").obj()]
    running = [make_pod("a").node("large").req(memory="40Gi").obj()]
    pod = make_pod("web").req(memory="2Gi").obj()
    scores = run_score(MemoryHeadroom(None, None), pod, nodes, running)
    assert scores == {"small": 80, "large": 58, "tiny": 0}


async def test_pods_see_what_those_before_them_took(cluster):
    """A declaration that is not true would give full nodes the scores of empty ones."""
    score = {"disabled": [{"name": "*"}], "enabled": [{"name": "MemoryHeadroom"}]}
    only = {"profiles": [{"plugins": {"score": score}}]}
    async with cluster([node("n1"), node("n2")], config=only, plugins=PLUGINS) as c:
        for number in range(6):
            await c.create(make_pod(f"p{number}").req(memory="1Gi"))
            await c.settle()
        placed = [c.bound(f"p{number}") for number in range(6)]
        assert sorted(placed) == ["n1"] * 3 + ["n2"] * 3
        assert all(placed[number] != placed[number + 1] for number in (0, 2, 4))
