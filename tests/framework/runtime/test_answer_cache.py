"""A plugin that has nothing to do for a template is asked once about it, not once a pod."""

from __future__ import annotations

from ksched.framework import PASS_TEMPLATE, SKIP, SKIP_TEMPLATE
from ksched.testing import FakePlugin, cluster, make_pod


async def test_a_plugin_that_skips_a_template_is_not_asked_again_about_its_pods() -> None:
    plugin = FakePlugin("Aloof", pre_filter=SKIP_TEMPLATE, filter=None, pre_score=SKIP_TEMPLATE)
    async with cluster(nodes=2, plugins=[plugin]) as c:
        await c.create(*(make_pod(f"web-{number}").label(app="web") for number in range(3)))
        await c.create(make_pod("db").label(app="db"))
        await c.settle()
        assert [call.pod for call in plugin.calls("pre_filter")] == ["default/web-0", "default/db"]
        assert [call.pod for call in plugin.calls("pre_score")] == ["default/web-0", "default/db"]
        assert plugin.calls("filter") == []
        assert all(c.bound(name) for name in ("web-0", "web-1", "web-2", "db"))


async def test_a_plugin_that_skips_a_pod_is_asked_about_the_next() -> None:
    plugin = FakePlugin("Choosy", pre_filter=SKIP, filter=None)
    async with cluster(nodes=2, plugins=[plugin]) as c:
        await c.create(*(make_pod(f"web-{number}").label(app="web") for number in range(3)))
        await c.settle()
        assert len(plugin.calls("pre_filter")) == 3
        assert plugin.calls("filter") == []


async def test_a_plugin_that_passes_a_template_still_filters_its_pods() -> None:
    plugin = FakePlugin("Ready", pre_filter=PASS_TEMPLATE, filter=None, pre_score=PASS_TEMPLATE)
    async with cluster(nodes=1, plugins=[plugin]) as c:
        await c.create(*(make_pod(f"web-{number}").label(app="web") for number in range(3)))
        await c.settle()
        assert len(plugin.calls("pre_filter")) == 1
        assert len(plugin.calls("filter")) == 3
