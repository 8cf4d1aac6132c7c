"""A service to try the plugin with: ``python service.py`` allows every pod after two seconds."""

from __future__ import annotations

import asyncio

from aiohttp import web


async def permit(request: web.Request) -> web.Response:
    question = await request.json()
    await asyncio.sleep(2)
    if question["name"].startswith("bad"):
        return web.json_response({"allowed": False, "reason": "its name is bad"})
    return web.json_response({"allowed": True})


def application() -> web.Application:
    app = web.Application()
    app.router.add_post("/permit", permit)
    return app


if __name__ == "__main__":
    web.run_app(application(), host="127.0.0.1", port=8099)
