from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from foreshock.stats.trend import kendall, theil_sen


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=30))
def test_the_slope_is_that_of_scipy(values):
    x = np.arange(len(values), dtype=float)
    assert theil_sen(x, values) == pytest.approx(stats.theilslopes(values, x).slope, abs=1e-9)


def test_a_few_wild_points_hardly_matter():
    x = np.arange(20.0)
    y = 0.5 * x
    y[[3, 11]] = 1e6
    assert theil_sen(x, y) == pytest.approx(0.5)


@pytest.mark.parametrize("x", [[], [1.0], [2.0, 2.0]])
def test_without_two_places_there_is_no_slope(x):
    assert math.isnan(theil_sen(x, x))


def test_kendall_agrees_with_scipy_without_ties():
    values = np.random.default_rng(0).permutation(30).astype(float)
    tau = stats.kendalltau(np.arange(30), values).statistic
    assert kendall(values) == pytest.approx(tau * math.sqrt(9 * 30 * 29 / (2 * 65)))
    assert kendall(np.ones(30)) == 0.0
    assert kendall(np.ones(1)) == 0.0
