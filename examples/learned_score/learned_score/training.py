"""Trains the model: ``python -m learned_score.training FILE`` writes its weights.

The history is simulated here. To learn from your own cluster, replace ``simulated_history`` by what
you measured: for every pod that ran, which fractions of its node's CPU and memory were requested,
and how much slower it ran than on an empty node.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from learned_score import Floats, Model

UNITS = 12
STEPS = 4000
RATE = 0.01


class History(NamedTuple):
    cpu: Floats
    memory: Floats
    slowdown: Floats


def simulated_history(pods: int, seed: int) -> History:
    """Pods are slowed by a busy CPU, by memory that is nearly full, and a little by imbalance."""
    rng = np.random.default_rng(seed)
    cpu, memory = rng.random(pods), rng.random(pods)
    busy, full = np.maximum(cpu - 0.6, 0.0), np.maximum(memory - 0.85, 0.0)
    slowdown = 1.0 + 3.0 * busy + 5.0 * full + 0.4 * np.abs(cpu - memory)
    return History(cpu, memory, slowdown + rng.normal(0.0, 0.05, pods))


def error(model: Model, history: History) -> float:
    """The mean error of the predicted slowdown."""
    return float(np.abs(model.predict(history.cpu, history.memory) - history.slowdown).mean())


def train(history: History, seed: int, steps: int = STEPS) -> Model:
    """Least squares by gradient descent with Adam's step sizes."""
    rng = np.random.default_rng(seed)
    features = np.stack([history.cpu, history.memory, np.abs(history.cpu - history.memory)], axis=1)
    weights = [rng.normal(0.0, 0.5, (3, UNITS)), rng.normal(0.0, 0.1, UNITS)]
    weights += [rng.normal(0.0, 0.5, UNITS), np.ones(1)]
    means, squares = ([np.zeros_like(one) for one in weights] for _ in range(2))
    for step in range(1, steps + 1):
        hidden, hidden_bias, output, bias = weights
        activation = features @ hidden + hidden_bias
        active = np.maximum(activation, 0.0)
        residual = (active @ output + bias - history.slowdown) / len(features)
        back = np.outer(residual, output) * (activation > 0.0)
        gradients = [features.T @ back, back.sum(axis=0), active.T @ residual, residual.sum()]
        for index, gradient in enumerate(gradients):
            means[index] = 0.9 * means[index] + 0.1 * gradient
            squares[index] = 0.999 * squares[index] + 0.001 * gradient**2
            mean, square = means[index] / (1 - 0.9**step), squares[index] / (1 - 0.999**step)
            weights[index] = weights[index] - RATE * mean / (np.sqrt(square) + 1e-8)
    hidden, hidden_bias, output, bias = weights
    return Model(hidden, hidden_bias, output, float(bias[0]))


def save(model: Model, path: Path) -> None:
    content = {
        "hidden": model.hidden.round(5).tolist(),
        "hidden_bias": model.hidden_bias.round(5).tolist(),
        "output": model.output.round(5).tolist(),
        "bias": round(model.bias, 5),
    }
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m learned_score.training", description=__doc__)
    parser.add_argument("file", type=Path, help="where to write the weights")
    model = train(simulated_history(4000, seed=1), seed=2)
    path = parser.parse_args().file
    save(model, path)
    wrong = error(model, simulated_history(4000, seed=3))
    print(f"{path}: wrong by {wrong:.3f} on average for pods it did not learn from")  # noqa: T201


if __name__ == "__main__":
    main()
