"""The Common Expression Language, as Kubernetes v1.36 configures it (cel-go v0.26).

    environment = Environment(kubernetes_library(), {"device": struct("Device")}, {...})
    program = environment.check('device.driver == "x"').plan(cost_limit=1_000_000)
    program.evaluate({"driver": "x"})

Text goes through lexer, parser (with macros), checker and planner, which builds nested Python
functions. These are loaded when the first environment is made. What does not belong here: anything
about devices, pods or scheduling.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ksched.cel.errors import CompileError, CostExceeded, EvaluationError

if TYPE_CHECKING:
    from ksched.cel.environment import Environment, Program, kubernetes_library

__all__ = [
    "CompileError",
    "CostExceeded",
    "Environment",
    "EvaluationError",
    "Program",
    "kubernetes_library",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("ksched.cel.environment"), name)
    raise AttributeError(f"module 'ksched.cel' has no attribute {name!r}")
