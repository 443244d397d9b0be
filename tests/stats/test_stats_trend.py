from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from foreshock.errors import InputError
from foreshock.stats.trend import rolling_median, theil_sen

points = st.lists(st.tuples(st.integers(-50, 50), st.floats(-1e3, 1e3)), min_size=2, max_size=40)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # scipy's confidence interval
@settings(deadline=None)
@given(points)
def test_theil_sen_agrees_with_scipy(pairs: list[tuple[int, float]]) -> None:
    x, y = np.array(pairs, float).T
    result = theil_sen(y, x)
    if np.unique(x).size < 2:
        assert math.isnan(result.value)
        assert "no slope" in result.reason
    else:
        assert result.value == pytest.approx(scipy_stats.theilslopes(y, x).slope, rel=1e-9, abs=1e-9)
        assert result.n == len(pairs)


def test_outliers_and_gaps_do_not_matter() -> None:
    y = 0.5 * np.arange(100.0)
    y[[3, 50, 80]] = [1e9, np.nan, -np.inf]
    assert theil_sen(y).value == pytest.approx(0.5)
    assert theil_sen(y).n == 98


def test_long_series_are_thinned() -> None:
    g = np.random.default_rng(0)
    y = 0.01 * np.arange(100_000) + g.normal(0, 5, 100_000)
    result = theil_sen(y)
    assert result.n == 512
    assert result.value == pytest.approx(0.01, rel=0.01)


def test_nothing_to_fit() -> None:
    for y in ([], [1.0], [np.nan, 2.0]):
        assert math.isnan(theil_sen(y).value)
    with pytest.raises(InputError, match=r"got shapes \(2,\) and \(3,\)"):
        theil_sen([1, 2], [1, 2, 3])


def test_rolling_median() -> None:
    y = [1.0, 9.0, 2.0, np.nan, 4.0, 100.0]
    assert rolling_median(y, 3).tolist() == [1.0, 5.0, 2.0, 5.5, 3.0, 52.0]
    assert np.isnan(rolling_median([np.nan, 1.0], 1)).tolist() == [True, False]
    with pytest.raises(InputError, match="window: got 0"):
        rolling_median(y, 0)
