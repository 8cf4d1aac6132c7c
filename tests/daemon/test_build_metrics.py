"""Version and features of a process, as metrics.

That kube-scheduler says the same of its features is tested in tests/real/test_zpages.py.
"""

from __future__ import annotations

import re

from ksched import __version__
from ksched.configuration.feature_gates import FEATURE_GATES, HONOURED
from ksched.daemon.build_metrics import build_gauges


def test_the_build_is_that_of_ksched_for_a_version_of_kubernetes():
    build, _ = build_gauges({})()
    [sample] = build.samples
    labels = dict(sample.labels)

    assert (sample.name, sample.value) == ("kubernetes_build_info", 1)
    assert labels.pop("go_version").startswith("python3.")
    assert re.fullmatch(r"[a-z]+/[a-z0-9_]+", labels.pop("platform"))
    assert labels == {
        "major": "1",
        "minor": "36",
        "git_version": f"v{__version__}",
        "git_commit": "",
        "git_tree_state": "",
        "build_date": "",
        "compiler": "cpython",
    }


def enabled(gates):
    _, features = build_gauges(gates)()
    assert features.name == "kubernetes_feature_enabled"
    assert {sample.labels["stage"] for sample in features.samples} == {"ALPHA", "BETA", ""}
    return {sample.labels["name"]: sample.value for sample in features.samples}


def test_features_are_what_ksched_does_and_not_what_it_was_told():
    default, inverted = enabled({}), {name: not gate.default for name, gate in GATES.items()}
    assert set(default) == set(FEATURE_GATES)
    assert default["DRAExtendedResource"] == 1
    assert default["GangScheduling"] == 0
    assert default["OpportunisticBatching"] == 0, "on in kube-scheduler, but not here"
    changed = {name for name, value in enabled(inverted).items() if value != default[name]}
    assert changed == HONOURED


GATES = {name: gate for name, gate in FEATURE_GATES.items() if not gate.locked}
