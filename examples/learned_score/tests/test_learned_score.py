import pytest
from learned_score import SHIPPED_WEIGHTS, LearnedScore, LearnedScoreArgs, Model
from learned_score.training import error, save, simulated_history, train

from ksched.errors import ConfigError
from ksched.testing import make_node, make_pod
from ksched.testing.plugin_runner import run_score

PLUGINS = {"LearnedScore": LearnedScore}
NEW_PODS = simulated_history(2000, seed=9)
"""Pods that the shipped model did not learn from."""


def node(name, cpu="10", memory="10Gi"):
    return make_node(name).capacity(cpu=cpu, memory=memory)


def on(name, cpu, memory):
    return make_pod(f"on-{name}").node(name).req(cpu=cpu, memory=memory).obj()


def scores(nodes, running=(), pod=None):
    pod = pod or make_pod("web").req(cpu="100m", memory="100Mi")
    plugin = LearnedScore(LearnedScoreArgs(), None)
    return run_score(plugin, pod.obj(), [one.obj() for one in nodes], running)


def test_the_shipped_weights_predict_pods_they_have_not_seen():
    # The noise of a measurement alone makes 0.04.
    assert error(Model.load(SHIPPED_WEIGHTS), NEW_PODS) < 0.06
    guess = abs(NEW_PODS.slowdown - NEW_PODS.slowdown.mean()).mean()
    assert guess > 0.3


def test_busy_and_full_and_lopsided_nodes_are_worse():
    nodes = [node(name) for name in ("empty", "half", "busy", "full", "lopsided")]
    running = [
        on("half", "5", "5Gi"),
        on("busy", "9500m", "5Gi"),
        on("full", "5", "9900Mi"),
        on("lopsided", "6", "100Mi"),
    ]
    found = scores(nodes, running)
    assert found["empty"] >= 95
    assert found["half"] >= 95
    assert found["lopsided"] < found["half"]
    assert found["full"] < found["lopsided"]
    assert found["busy"] < found["lopsided"]


def test_a_score_is_the_same_alone_and_among_others():
    nodes = [node(f"n{number}", cpu=str(3 + number)) for number in range(50)]
    running = [on(f"n{number}", "2", f"{number}00Mi") for number in range(50)]
    together = scores(nodes, running)
    assert len(set(together.values())) > 10
    for one, pod in zip(nodes, running, strict=True):
        [(name, alone)] = scores([one], [pod]).items()
        assert alone == together[name]


def test_a_node_without_resources_gets_no_points():
    # More than three times slower is as bad as it gets.
    assert scores([node("none", cpu="0", memory="0")])["none"] == pytest.approx(0, abs=15)


async def test_pods_see_what_those_before_them_took(cluster):
    """A declaration that is not true would give full nodes the scores of empty ones."""
    score = {"disabled": [{"name": "*"}], "enabled": [{"name": "LearnedScore"}]}
    only = {"profiles": [{"plugins": {"score": score}}]}
    async with cluster([node("n1"), node("n2")], config=only, plugins=PLUGINS) as c:
        for number in range(8):
            await c.create(make_pod(f"p{number}").req(cpu="2", memory="2Gi"))
            await c.settle()
        placed = [c.bound(f"p{number}") for number in range(8)]
        assert placed.count("n1") == placed.count("n2") == 4


def test_training_learns(tmp_path):
    history = simulated_history(500, seed=4)
    before, after = (train(history, seed=5, steps=steps) for steps in (1, 300))
    assert error(after, NEW_PODS) < 0.5 * error(before, NEW_PODS)
    save(after, tmp_path / "weights.json")
    again = Model.load(tmp_path / "weights.json")
    assert error(again, NEW_PODS) == pytest.approx(error(after, NEW_PODS), abs=0.001)


async def start(cluster, weights):
    args = [{"name": "LearnedScore", "args": {"weights": str(weights)}}]
    async with cluster(1, config={"profiles": [{"pluginConfig": args}]}, plugins=PLUGINS) as c:
        await c.create(make_pod("web"))
        await c.settle()
        return c.bound("web")


async def test_other_weights_can_be_configured(cluster, tmp_path):
    save(train(simulated_history(100, seed=6), seed=7, steps=10), tmp_path / "mine.json")
    assert await start(cluster, tmp_path / "mine.json") == "n1"


async def test_weights_that_are_not_there_are_told_at_the_start(cluster, tmp_path):
    with pytest.raises(ConfigError, match=r"pluginConfig\[0\].args.weights: .*not point to a file"):
        await start(cluster, tmp_path / "mine.json")


async def test_weights_of_another_model_are_refused(cluster, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"hidden": [[1], [2]], "hidden_bias": [1], "output": [1], "bias": 1}')
    with pytest.raises(ConfigError, match=r"hidden is \(2, 1\)"):
        await start(cluster, path)
