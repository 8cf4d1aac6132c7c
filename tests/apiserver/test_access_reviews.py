from __future__ import annotations

import msgspec
import pytest

from ksched.apiserver.access_reviews import ACCESS_REVIEWS, TOKEN_REVIEWS
from ksched.apiserver.api_server import ApiServer
from ksched.apiserver.in_process import InProcessTransport
from ksched.clock import LoopClock


@pytest.fixture
def server():
    return ApiServer(LoopClock())


async def review(server, path, **spec):
    body = msgspec.json.encode({"spec": spec})
    answer = await InProcessTransport(server).request("POST", path, body)
    assert answer.status == 201
    return msgspec.json.decode(answer.body)["status"]


async def test_a_token_is_its_users_name(server):
    status = await review(server, TOKEN_REVIEWS, token="ada")
    assert status["authenticated"]
    assert status["user"] == {"username": "ada", "groups": ["system:authenticated"]}


async def test_invalid_tokens_are_not_authenticated(server):
    server.reviews.invalid_tokens.add("stolen")
    for token in ("stolen", ""):
        assert "authenticated" not in await review(server, TOKEN_REVIEWS, token=token)


async def test_every_user_is_allowed_but_those_named(server):
    server.reviews.denied_users.add("bob")
    assert await review(server, ACCESS_REVIEWS, user="ada") == {"allowed": True}
    assert await review(server, ACCESS_REVIEWS, user="bob") == {"allowed": False}


async def test_a_body_that_is_none_is_refused(server):
    answer = await InProcessTransport(server).request("POST", TOKEN_REVIEWS, b"{")
    assert answer.status == 400
