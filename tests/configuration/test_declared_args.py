"""Plugins outside the tree that declare a model of their arguments."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from ksched.configuration import load_config
from ksched.configuration.declared_args import declared_args
from ksched.configuration.model import PluginConfig, Profile
from ksched.errors import ConfigError


class Limits(BaseModel):
    per_node: int = Field(default=3, alias="perNode", ge=1, le=100)


class Args(BaseModel):
    url: str
    retries: int = 2
    limits: list[Limits] = []
    token: str = ""

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if not url.startswith("http://"):
            raise ValueError(f"wanted an http:// address, got {url!r}")
        return url


def profile(*args: Any, before: int = 0) -> Profile:
    others = tuple(PluginConfig(name=f"Other{number}", args={}) for number in range(before))
    own = tuple(PluginConfig(name="Asks", args=one) for one in args)
    return Profile(scheduler_name="s", plugin_config=(*others, *own))


def problems(model: object, of: Profile) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        declared_args(model, of, "Asks")
    return list(caught.value.problems)


def test_arguments_are_the_model_with_its_defaults() -> None:
    args = declared_args(
        Args, profile({"url": "http://a", "limits": [{"perNode": 7}, {}]}, before=2), "Asks"
    )
    assert args == Args(url="http://a", limits=[Limits(perNode=7), Limits()])
    assert isinstance(args, Args)


def test_all_problems_are_told_at_once_with_their_paths() -> None:
    wrong = {"url": "ftp://a", "retries": "many", "limits": [{}, {"perNode": 0}], "urll": 1}
    assert problems(Args, profile(wrong, before=2)) == [
        "pluginConfig[2].args.url: wanted an http:// address, got 'ftp://a'",
        'pluginConfig[2].args.retries: Invalid value: "many": '
        "Input should be a valid integer, unable to parse string as an integer",
        "pluginConfig[2].args.limits[1].perNode: Invalid value: 0: "
        "Input should be greater than or equal to 1",
        'unknown field "pluginConfig[2].args.urll"',
    ]


@pytest.mark.parametrize("args", [(), (None,), ({},)], ids=["no entry", "no args", "empty args"])
def test_what_is_missing_is_told_also_without_an_entry(args: tuple[Any, ...]) -> None:
    place = "pluginConfig[0].args" if args else "args"
    assert problems(Args, profile(*args)) == [f"{place}.url: Required value"]


def test_a_secret_is_not_shown() -> None:
    [text] = problems(Args, profile({"url": "http://a", "token": ["s3cr3t"]}))
    assert text.startswith("pluginConfig[0].args.token: Invalid value: ")
    assert "s3cr3t" not in text


def test_kind_and_version_of_kube_scheduler_are_no_arguments() -> None:
    typed = {"apiVersion": "example.com/v1", "kind": "AsksArgs", "url": "http://a"}
    assert declared_args(Args, profile(typed), "Asks") == Args(url="http://a")

    class WithKind(BaseModel):
        kind: str

    assert declared_args(WithKind, profile({"kind": "x"}), "Asks") == WithKind(kind="x")


def test_a_model_may_say_itself_what_unknown_fields_are() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    args = declared_args(Open, profile({"more": 1}), "Asks")
    assert args.model_extra == {"more": 1}


@pytest.mark.parametrize("model", [dict, Args(url="http://a"), "Args"])
def test_anything_but_a_model_is_refused(model: object) -> None:
    [text] = problems(model, profile({}))
    assert text.startswith("args_model must be a pydantic model, got ")


def test_bounds_of_a_number_type_are_still_told_as_such() -> None:
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    with pytest.raises(ConfigError, match=r"parallelism: .*must fit in int32"):
        load_config(text + f"parallelism: {2**40}\n")
