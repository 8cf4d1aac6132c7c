from __future__ import annotations

import pytest

from ksched.configuration.front_proxy import FrontProxy, front_proxy_of


def test_the_config_map_names_everything() -> None:
    assert front_proxy_of(
        {
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-group-headers": '["X-Remote-Group", "X-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            "requestheader-client-ca-file": "not read here",
        }
    ) == FrontProxy(
        allowed_names=("front-proxy-client",),
        username_headers=("X-Remote-User",),
        uid_headers=("X-Remote-Uid",),
        group_headers=("X-Remote-Group", "X-Group"),
        extra_prefixes=("X-Remote-Extra-",),
    )


def test_what_the_config_map_does_not_name_is_not_there() -> None:
    nothing = FrontProxy(username_headers=(), group_headers=(), extra_prefixes=())
    assert front_proxy_of({}) == nothing
    assert front_proxy_of({"requestheader-username-headers": "null"}) == nothing


@pytest.mark.parametrize("text", ["X-Remote-User", '"X"', "[1]", "{}", "["])
def test_anything_but_a_list_of_names_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^requestheader-username-headers: "):
        front_proxy_of({"requestheader-username-headers": text})
