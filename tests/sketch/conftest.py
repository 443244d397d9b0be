"""Ten distributions of log-ratios, for the tests of the promised error."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

Draw = Callable[[int], np.ndarray]

DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda g, n: g.normal(0, 0.1, n),
    "laplace": lambda g, n: g.laplace(0, 0.05, n),
    "t3": lambda g, n: 0.1 * g.standard_t(3, n),
    "cauchy": lambda g, n: np.clip(1e-3 * g.standard_cauchy(n), -100, 100),
    "lognormal": lambda g, n: np.clip(g.lognormal(-6, 2.5, n), 1e-6, 100),
    "pareto": lambda g, n: np.clip(1e-3 * (1 + g.pareto(1.2, n)), 0, 100),
    "exponential": lambda g, n: -g.exponential(2.0, n),
    "uniform": lambda g, n: g.uniform(-5, 5, n),
    "log_uniform": lambda g, n: np.exp(g.uniform(math.log(1e-6), math.log(100), n)),
    "zeros_and_tail": lambda g, n: np.where(g.random(n) < 0.35, 0.0, 0.05 * g.standard_t(2.5, n)),
}


@pytest.fixture(params=DISTRIBUTIONS)
def draw(request: pytest.FixtureRequest) -> Draw:
    """A function that draws n log-ratios, (n,) float32."""
    return lambda n: DISTRIBUTIONS[request.param](np.random.default_rng(0), n).astype(np.float32)
