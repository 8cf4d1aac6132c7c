"""What plugins keep for templates."""

from __future__ import annotations

from ksched.cache.counters.per_template import PerTemplate
from ksched.cache.counters.pod_ledger import counters_of
from ksched.cache.pod_info import PodTemplate, TemplateRegistry
from ksched.cache.resource_axis import ResourceAxis
from ksched.cache.snapshot import Snapshot
from ksched.testing.builders import make_pod

AXIS = ResourceAxis()
REGISTRY = TemplateRegistry(AXIS)


def _template(number: int) -> PodTemplate:
    return REGISTRY.pod_info(make_pod().label(number=str(number)).obj()).template


def test_the_template_unused_for_longest_makes_room() -> None:
    ledger = counters_of(Snapshot(AXIS).table)
    kept: PerTemplate[int] = PerTemplate()
    templates = [_template(number) for number in range(1025)]
    for number, template in enumerate(templates[:1024]):
        assert kept.get(ledger, template) is None
        kept.put(template, number)
    assert kept.get(ledger, templates[0]) == 0

    kept.put(templates[1024], 1024)

    assert kept.get(ledger, templates[0]) == 0
    assert kept.get(ledger, templates[1]) is None
    assert kept.get(ledger, templates[1024]) == 1024


def test_counters_of_another_table_are_of_no_use() -> None:
    kept: PerTemplate[int] = PerTemplate()
    one, other = counters_of(Snapshot(AXIS).table), counters_of(Snapshot(AXIS).table)
    template = _template(0)
    kept.get(one, template)
    kept.put(template, 1)

    assert kept.get(other, template) is None
    assert kept.get(one, template) is None
