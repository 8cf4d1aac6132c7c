"""The table of watched kinds, and the roles that follow from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from msgspec import Struct

from ksched.api.decoding import decoder_of
from ksched.api.objects import ObjectMeta
from ksched.api.watched_kinds import READ, WATCHED_KINDS, Unstructured, WatchedKind

RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"


def test_the_role_lets_the_scheduler_do_what_the_table_says_and_read_nothing_else() -> None:
    documents = yaml.safe_load_all(RBAC.read_text())
    [role] = [one for one in documents if one["kind"] == "ClusterRole"]
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {
        (row.resource.group, row.resource.plural, verb)
        for row in WATCHED_KINDS
        for verb in row.verbs
    }
    assert needed <= granted
    assert {one for one in granted if one[2] in READ} == {one for one in needed if one[2] in READ}


def test_events_name_each_kind_once() -> None:
    names = [row.event_resource for row in WATCHED_KINDS if row.event_resource]
    assert len(names) == len(set(names))


class WithoutMetadata(Struct):
    spec: dict[str, str]


class WithOtherMetadata(Struct):
    metadata: dict[str, str]


@pytest.mark.parametrize("struct", [WithoutMetadata, WithOtherMetadata])
def test_a_struct_needs_metadata(struct: type) -> None:
    with pytest.raises(TypeError, match="needs a field metadata: ObjectMeta"):
        WatchedKind.custom(struct, group="g", version="v1", plural="xs", kind="X")


def test_a_kind_needs_a_struct() -> None:
    with pytest.raises(TypeError, match=r"dict must be a msgspec\.Struct or Unstructured"):
        WatchedKind.custom(dict, group="g", version="v1", plural="xs", kind="X")  # type: ignore[type-var]


@pytest.mark.parametrize(("group", "name"), [("g.com", "xs.v1.g.com"), ("", "xs.v1")])
def test_events_are_named_as_in_kube_scheduler(group: str, name: str) -> None:
    kind = WatchedKind.custom(Unstructured, group=group, version="v1", plural="xs", kind="X")
    assert kind.event_resource == name


def test_plain_data_keeps_every_field() -> None:
    kind = WatchedKind.custom(Unstructured, group="g", version="v1", plural="xs", kind="X")
    text = b'{"metadata":{"name":"a","namespace":"b"},"spec":{"odd":[1,null]}}'
    decoded = decoder_of(kind)(text)
    assert decoded.metadata == ObjectMeta(name="a", namespace="b")
    assert decoded.object["spec"] == {"odd": [1, None]}
