"""plugins/imagelocality/image_locality.go; the numbers are those of its formula."""

from __future__ import annotations

import pytest

from ksched.framework.plugins.image_locality import ImageLocality
from ksched.testing.builders import NodeBuilder, PodBuilder, make_node, make_pod
from ksched.testing.plugin_runner import PluginBench, run_score

MIB = 1024 * 1024


def _nodes(*images: list[tuple[str, int]]) -> list[NodeBuilder]:
    nodes = []
    for number, present in enumerate(images):
        node = make_node(f"n{number}")
        for name, size_mib in present:
            node = node.image(name, size_mib * MIB)
        nodes.append(node)
    return nodes


WEB = make_pod().image("web:v1")


@pytest.mark.parametrize(
    ("pod", "nodes", "scores"),
    [
        pytest.param(WEB, _nodes([("web:v1", 300)], []), [12, 0], id="300 MiB on one node of two"),
        pytest.param(WEB, _nodes([("web:v1", 1000)]), [100], id="1000 MiB everywhere"),
        pytest.param(WEB, _nodes([("web:v1", 5000)]), [100], id="more does not count"),
        pytest.param(WEB, _nodes([("web:v1", 23)]), [0], id="23 MiB do not matter"),
        pytest.param(
            make_pod().image("a:1").container().image("b:1"),
            _nodes([("a:1", 200), ("b:1", 200)]),
            [19],
            id="400 MiB in two containers",
        ),
        pytest.param(WEB, _nodes([("web:v2", 900)]), [0], id="another version"),
        pytest.param(
            make_pod().image("web"), _nodes([("web:latest", 1000)]), [100], id="no tag means latest"
        ),
        pytest.param(
            make_pod().image("host:5000/web"),
            _nodes([("host:5000/web:latest", 1000)]),
            [100],
            id="the colon of a port is not a tag",
        ),
        pytest.param(
            make_pod().image("host:5000/web:v1"),
            _nodes([("host:5000/web:v1", 1000)]),
            [100],
            id="port and tag",
        ),
        pytest.param(
            WEB.init(image="setup:v1"),
            _nodes([("setup:v1", 1000)]),
            [49],
            id="init containers count, and raise the ceiling",
        ),
        pytest.param(
            WEB.merge({"spec": {"volumes": [{"name": "v", "image": {"reference": "data:v1"}}]}}),
            _nodes([("data:v1", 1000)]),
            [100],
            id="image volumes count, and do not raise the ceiling",
        ),
        pytest.param(
            WEB,
            _nodes([("web:v1", 500)], [("web:v1", 900)]),
            [48, 48],
            id="the size that was reported first counts for all",
        ),
    ],
)
def test_nodes_with_the_images_score_higher(
    pod: PodBuilder, nodes: list[NodeBuilder], scores: list[int]
) -> None:
    answer = run_score(ImageLocality(), pod.obj(), [node.obj() for node in nodes])

    assert list(answer.values()) == scores


def test_the_epoch_tells_when_scores_of_other_nodes_change() -> None:
    bench = PluginBench([node.obj() for node in _nodes([("web:v1", 300)], [])])
    plugin, table = ImageLocality(), bench.snapshot.table
    epoch_of = plugin.score_depends_on.epoch
    assert epoch_of is not None
    epoch = epoch_of(bench.snapshot)

    relabelled = table.infos[1].clone()
    relabelled.set_node(make_node("n1").label(a="b").obj())
    table.put(relabelled)
    assert epoch_of(bench.snapshot) == epoch

    fetched = table.infos[1].clone()
    fetched.set_node(make_node("n1").image("web:v1", 300 * MIB).obj())
    table.put(fetched)
    assert epoch_of(bench.snapshot) != epoch
    assert bench.score(plugin, WEB.obj()) == {"n0": 28, "n1": 28}
