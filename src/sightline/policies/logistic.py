"""Logistic regression by gradient descent, in numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Descent:
    """How long and how far: steps, step size and the weight of the squared coefficients."""

    steps: int
    rate: float
    l2: float


@dataclass(frozen=True)
class Logistic:
    """P(event) = 1 / (1 + exp(-(bias + weights . (x - means) / scales)))."""

    means: tuple[float, ...]
    scales: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float

    def risk(self, x: list[float]) -> float:
        """Of one sample with these features."""
        each = zip(x, self.means, self.scales, self.weights, strict=True)
        raised = self.bias + sum(weight * (value - mean) / scale for value, mean, scale, weight in each)
        return float(1.0 / (1.0 + np.exp(-np.clip(raised, -60.0, 60.0))))


def fit_logistic(x: Floats, events: NDArray[np.bool_], how: Descent) -> Logistic:
    """(n, F) features and (n,) events; features are standardised, and the bias starts at the rate of events."""
    means, scales = x.mean(axis=0), x.std(axis=0)
    scales = np.where(scales > 1e-12, scales, 1.0)
    standard = (x - means) / scales
    wanted = events.astype(np.float64)
    start = 0.98 * wanted.mean() + 0.01
    weights, bias = np.zeros(x.shape[1]), float(np.log(start / (1.0 - start)))
    for _ in range(how.steps):
        error = 1.0 / (1.0 + np.exp(-np.clip(standard @ weights + bias, -60.0, 60.0))) - wanted
        weights = weights - how.rate * (standard.T @ error / len(wanted) + how.l2 * weights)
        bias -= how.rate * float(error.mean())
    return Logistic(tuple(means.tolist()), tuple(scales.tolist()), tuple(weights.tolist()), bias)
