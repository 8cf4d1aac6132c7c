"""The Common Expression Language, as Kubernetes v1.36 configures it (cel-go v0.26).

    environment = Environment(kubernetes_library(), {"device": struct("Device")}, {...})
    program = environment.check('device.driver == "x"').plan(cost_limit=1_000_000)
    program.evaluate({"driver": "x"})

Text goes through lexer, parser (with macros), checker and planner, which builds nested Python
functions. What does not belong here: anything about devices, pods or scheduling.
"""

from ksched.cel.environment import Environment, Program, kubernetes_library
from ksched.cel.errors import CompileError, CostExceeded, EvaluationError

__all__ = [
    "CompileError",
    "CostExceeded",
    "Environment",
    "EvaluationError",
    "Program",
    "kubernetes_library",
]
