from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from foreshock.stats.tail import hill_index, pareto_k


def counted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, counts = np.unique(x, return_counts=True)
    return values, counts


@pytest.mark.parametrize("alpha", [1.0, 2.0, 4.0])
def test_hill_finds_the_index_of_a_pareto_tail(alpha: float) -> None:
    x = 1 + np.random.default_rng(0).pareto(alpha, 100_000)
    result = hill_index(*counted(x), top=2_000)
    assert result.value == pytest.approx(1 / alpha, rel=0.1)
    assert (result.n, result.ok) == (2_000, True)


def test_hill_is_the_mean_of_logs_over_the_threshold() -> None:
    x = np.array([1.0, 2, 2, 4, 8, 8])
    expected = np.mean(np.log(np.array([4, 8, 8]) / 2))
    assert hill_index(*counted(x), top=3).value == pytest.approx(expected)
    # One of the two 2s belongs to the tail, the other is the threshold.
    assert hill_index(*counted(x), top=4).value == pytest.approx(np.mean(np.log(np.array([2, 4, 8, 8]) / 2)))


@pytest.mark.parametrize("index", [hill_index, pareto_k])
def test_degenerate_tails_have_a_reason(index: object) -> None:
    empty = np.array([]), np.array([], int)
    for values, counts, top in (
        (*empty, 5),
        (np.array([1.0]), np.array([10]), 10),
        (np.array([1.0, 2.0]), np.array([3, 3]), 0),
    ):
        result = index(values, counts, top)  # type: ignore[operator]
        assert math.isnan(result.value)
        assert result.reason
    assert hill_index(np.array([0.0, 1.0]), np.array([9, 1]), 5).reason == "the tail reaches down to zero"
    assert "no shape" in pareto_k(np.array([1.0]), np.array([100]), 20).reason
    assert hill_index(np.array([1.0]), np.array([100]), 20).value == 0


@pytest.mark.parametrize("shape", [-0.2, 0.1, 0.5, 0.9])
def test_pareto_k_finds_the_shape(shape: float) -> None:
    x = scipy_stats.genpareto.rvs(shape, size=20_000, random_state=1)
    result = pareto_k(*counted(x), top=4_000)
    assert result.value == pytest.approx(shape, abs=0.08)


def test_pareto_k_is_close_to_maximum_likelihood() -> None:
    x = np.sort(np.exp(np.random.default_rng(3).standard_t(3, 5_000)))
    excess = x[-500:] - x[-501]
    fitted, _, _ = scipy_stats.genpareto.fit(excess, floc=0)
    assert pareto_k(*counted(x), top=500).value == pytest.approx(fitted, abs=0.05)


def test_pareto_k_does_not_depend_on_scale_and_place() -> None:
    x = np.random.default_rng(0).pareto(2, 3_000)
    a, b = pareto_k(*counted(x), 300), pareto_k(*counted(1e6 * x + 5), 300)
    assert a.value == pytest.approx(b.value, rel=1e-6)


def test_pareto_k_of_huge_ratios() -> None:
    with np.errstate(all="raise"):
        assert pareto_k(*counted(np.exp(np.linspace(-300, 300, 1_000))), 100).value > 1
