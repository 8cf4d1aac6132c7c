"""What a plugin declares its answers to depend on is all of it: cached against recomputed.

Here variants of one question (``declaration_trials``); ``life`` recomputes in every attempt.
"""

from __future__ import annotations

import inspect
from typing import Final

from ksched.framework.runtime.declaration_checks import FalseDeclaration, described
from ksched.framework.runtime.plugin_contract import DECLARATIONS
from ksched.testing.conformance.determinism import told
from ksched.testing.conformance.report import CheckResult, Finding
from ksched.testing.conformance.subject import Subject
from ksched.testing.conformance.trial import run, watched
from ksched.testing.plugin_runner import PluginBench

NAME: Final = "declarations"
ADVICE: Final = (
    "The answer depends on more than is declared, so the scheduler would go on with a stale one. "
    "Declare a wider scope (NODE, RESOURCES, ROW, CLUSTER, POD; interface.py says what each may "
    "read), or read less."
)
MAX_NODES: Final = 12
MAX_PODS: Final = 12


def check(subject: Subject) -> CheckResult:
    result = CheckResult(NAME, "filter_depends_on and score_depends_on are true")
    run(_check(subject, result))
    return result


async def _check(subject: Subject, result: CheckResult) -> None:
    content = subject.cluster()
    async with watched(subject.target, content) as trial:
        plugin = trial.plugin
        declared = [name for name in DECLARATIONS if hasattr(plugin, name)]
        if not declared:
            return
        if inspect.iscoroutinefunction(getattr(plugin, "pre_filter", None)):
            result.notes.append("pre_filter is async: tried in a running scheduler only (life)")
            return
        nodes = [node.obj() for node in content.nodes[:MAX_NODES]]
        names = {node.metadata.name for node in nodes}
        running = [pod.obj() for pod in content.running]
        bench = PluginBench(nodes, [pod for pod in running if pod.spec.node_name in names])
        for pod in trial.pods[:MAX_PODS]:
            for ask in (bench.filter, bench.score):
                if f"{ask.__name__}_depends_on" not in declared:
                    continue
                result.cases += 1
                try:
                    ask(plugin, pod.pod)
                except FalseDeclaration as found:
                    result.add(finding(NAME, found))
                except AssertionError as problem:
                    result.notes.append(str(problem))


def finding(check: str, found: FalseDeclaration) -> Finding:
    """A false declaration as it is reported."""
    return Finding(
        check,
        "false declaration",
        found.plugin,
        found.method,
        f"{found.untrue} is not true in {described(found.declared)}.",
        ADVICE,
        found.pod,
        found.node,
        (f"cached {told(found.cached)}", f"recomputed {told(found.recomputed)}"),
    )
