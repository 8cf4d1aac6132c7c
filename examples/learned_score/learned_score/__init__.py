"""A score that was learned: prefers nodes on which pods are expected to run without being slowed.

A small neural network predicts from a node's columns how much slower a pod would run there than on
an empty node. The weights were trained by ``learned_score.training`` and are part of the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, FilePath

from ksched.framework import (
    MAX_NODE_SCORE,
    CycleState,
    Handle,
    NodeRows,
    PodInfo,
    Scope,
    ScoreDependsOn,
)

SHIPPED_WEIGHTS = Path(__file__).with_name("weights.json")
WORST_SLOWDOWN = 3.0
"""Nodes on which a pod would run so many times slower, or more, get no points."""

Floats = NDArray[np.float64]


class Model:
    """Three features, one hidden layer with ReLU, one output: the predicted slowdown."""

    def __init__(self, hidden: Floats, hidden_bias: Floats, output: Floats, bias: float) -> None:
        self.hidden, self.hidden_bias = hidden, hidden_bias
        self.output, self.bias = output, bias

    @classmethod
    def load(cls, path: Path) -> Model:
        content = json.loads(path.read_text())
        hidden, hidden_bias, output = (
            np.array(content[name], float) for name in ("hidden", "hidden_bias", "output")
        )
        units = len(hidden_bias)
        if hidden.shape != (3, units) or output.shape != (units,):
            raise ValueError(f"{path}: hidden is {hidden.shape} and output {output.shape}")
        return cls(hidden, hidden_bias, output, float(content["bias"]))

    def predict(self, cpu: Floats, memory: Floats) -> Floats:
        """The slowdown by node, from the fractions of its CPU and memory that are requested.

        Term by term instead of ``@``: BLAS adds in an order that depends on how many nodes there
        are. A node's score must be the same to the last bit alone and among others, because it is
        cached and compared.
        """
        slowdown = np.full(len(cpu), self.bias)
        imbalance = np.abs(cpu - memory)
        for unit, weight in enumerate(self.output):
            of_cpu, of_memory, of_imbalance = self.hidden[:, unit]
            activation = self.hidden_bias[unit] + of_cpu * cpu
            activation = activation + of_memory * memory + of_imbalance * imbalance
            slowdown += weight * np.maximum(activation, 0.0)
        return slowdown


class LearnedScoreArgs(BaseModel):
    """``pluginConfig``: other weights than those of the package, as ``training`` writes them."""

    weights: FilePath = SHIPPED_WEIGHTS


class LearnedScore:
    name = "LearnedScore"
    args_model = LearnedScoreArgs
    score_depends_on = ScoreDependsOn(Scope.RESOURCES, reads_inter_pod_fields=False)
    """The features are amounts and nothing else, so scores are cached until a node's amounts
    change, and shared by pods that request the same."""

    def __init__(self, args: LearnedScoreArgs, handle: Handle) -> None:
        self._model = Model.load(args.weights)

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: NodeRows) -> NDArray[np.int64]:
        """From 0 (three times slower) to 100 (as on an empty node)."""
        slowdown = self._model.predict(_used("cpu", pod, nodes), _used("memory", pod, nodes))
        goodness = (WORST_SLOWDOWN - slowdown) / (WORST_SLOWDOWN - 1.0)
        return np.rint(MAX_NODE_SCORE * np.clip(goodness, 0.0, 1.0)).astype(np.int64)


def _used(resource: str, pod: PodInfo, nodes: NodeRows) -> Any:
    """The fraction of each node that would be requested with the pod on it."""
    requested = nodes.requested(resource) + pod.template.requests.get(resource, 0)
    return np.minimum(requested / np.maximum(nodes.allocatable(resource), 1), 1.0)
