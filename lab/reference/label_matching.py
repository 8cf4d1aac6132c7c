"""Label selectors, spelled out."""

from __future__ import annotations

from ksched.api.objects import Labels, LabelSelector


def selector_matches(selector: LabelSelector | None, labels: Labels) -> bool:
    """No selector matches nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    for wanted in selector.match_expressions:
        value_or_none = labels.get(wanted.key)
        if wanted.operator == "In" and value_or_none not in wanted.values:
            return False
        if wanted.operator == "NotIn" and value_or_none in wanted.values:
            return False
        if wanted.operator == "Exists" and value_or_none is None:
            return False
        if wanted.operator == "DoesNotExist" and value_or_none is not None:
            return False
    return True


def is_empty(selector: LabelSelector | None) -> bool:
    """Whether a selector restricts nothing; the one that is not there restricts everything."""
    return selector is not None and not selector.match_labels and not selector.match_expressions
