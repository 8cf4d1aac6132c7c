import asyncio

import pytest
from aiohttp import web
from ask_permit import AskPermit, AskPermitArgs

from ksched.errors import ConfigError
from ksched.testing import make_pod

CONFIG = {
    "profiles": [
        {
            "plugins": {"multiPoint": {"enabled": [{"name": "AskPermit"}]}},
            "pluginConfig": [{"name": "AskPermit", "args": {"url": "http://127.0.0.1:1/"}}],
        }
    ]
}


def asking(answers, asked=None):
    """The plugin with a service that answers by the name of the pod, after two seconds."""

    def make(args, handle):
        plugin = AskPermit(args, handle)

        async def ask(question):
            if asked is not None:
                asked.append(question["name"])
            await asyncio.sleep(2)
            answer = answers[question["name"]]
            return answer.pop(0) if isinstance(answer, list) else answer

        plugin.ask = ask
        return plugin

    make.args_model = AskPermit.args_model
    return {"AskPermit": make}


async def test_pods_wait_beside_each_other(cluster):
    names = [f"p{number}" for number in range(50)]
    answers = {name: {"allowed": True} for name in names}
    async with cluster(3, config=CONFIG, plugins=asking(answers)) as c:
        await c.create(*map(make_pod, names))
        await c.advance(1.9)
        assert not any(map(c.bound, names))
        await c.advance(0.2)
        assert all(map(c.bound, names))


async def test_a_denied_pod_is_told_why(cluster):
    answers = {"bad": {"allowed": False, "reason": "budget"}, "good": {"allowed": True}}
    async with cluster(1, config=CONFIG, plugins=asking(answers)) as c:
        await c.create(make_pod("bad"), make_pod("good"))
        await c.advance(3)
        assert (c.bound("bad"), c.bound("good")) == (None, "n1")
        assert "denied: budget" in c.message("bad")


async def test_a_service_that_wants_more_time_is_asked_again(cluster):
    asked = []
    answers = {"web": [{"waitSeconds": 30}, {"allowed": True}]}
    async with cluster(1, config=CONFIG, plugins=asking(answers, asked)) as c:
        await c.create(make_pod("web"))
        await c.advance(33)
        assert c.bound("web") is None
        await c.advance(2)
        assert (c.bound("web"), asked) == ("n1", ["web", "web"])


async def test_a_deleted_pod_is_asked_about_no_more(cluster):
    asked = []
    answers = {"web": [{"waitSeconds": 30}, {"allowed": True}]}
    async with cluster(1, config=CONFIG, plugins=asking(answers, asked)) as c:
        await c.create(make_pod("web"))
        await c.advance(10)
        await c.delete("web", grace_seconds=0)
        await c.advance(60)
        assert asked == ["web"]


async def test_arguments_are_checked_at_the_start(cluster):
    args = {"url": "localhost", "timeoutSeconds": 0}
    config = {"profiles": [{"pluginConfig": [{"name": "AskPermit", "args": args}]}]}
    with pytest.raises(ConfigError) as caught:
        async with cluster(1, config=config, plugins={"AskPermit": AskPermit}):
            pass
    url, timeout = caught.value.problems
    assert "pluginConfig[0].args.url: Invalid value: " in url
    assert "pluginConfig[0].args.timeoutSeconds: Invalid value: 0: " in timeout


def test_over_a_real_connection():
    async def scenario():
        async def permit(request):
            question = await request.json()
            return web.json_response({"allowed": question["node"] == "n1"})

        app = web.Application()
        app.router.add_post("/permit", permit)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        [address] = runner.addresses
        try:
            args = AskPermitArgs(url=f"http://127.0.0.1:{address[1]}/permit")
            plugin = AskPermit(args, None)
            await plugin.start(None)
            question = {"namespace": "default", "name": "web", "node": "n1"}
            assert await plugin.ask(question) == {"allowed": True}
            assert await plugin.ask({**question, "node": "n2"}) == {"allowed": False}
            await plugin.stop()
        finally:
            await runner.cleanup()

    asyncio.run(scenario())
