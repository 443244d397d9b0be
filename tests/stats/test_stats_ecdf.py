from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from foreshock.stats.ecdf import ecdf, tail_distance


def test_ecdf_of_counted_values() -> None:
    found = ecdf(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1, 0, 2, 1]))
    assert found.values.tolist() == [1.0, 3.0, 4.0]
    assert found.shares.tolist() == [0.25, 0.75, 1.0]
    assert (found.n, found.ok) == (4, True)


def test_ecdf_of_nothing() -> None:
    found = ecdf(np.array([1.0]), np.array([0]))
    assert found.values.size == found.shares.size == found.n == 0
    assert found.reason == "no observation"


counts = st.lists(st.integers(0, 9), min_size=12, max_size=12).map(np.array)


@given(counts, counts)
def test_distance_of_whole_samples_is_that_of_scipy(before: np.ndarray, after: np.ndarray) -> None:
    values = np.cumsum(np.arange(1.0, 13.0))
    if not before.sum() or not after.sum():
        assert math.isnan(tail_distance(values, before, after, 1.0))
        return
    expected = stats.wasserstein_distance(values, values, before, after)
    assert tail_distance(values, before, after, 1.0) == pytest.approx(expected)


def test_distance_of_a_tail_looks_at_the_tail_alone() -> None:
    values = np.array([1.0, 2.0, 5.0, 9.0])
    body, moved = np.array([60, 30, 10, 0]), np.array([10, 80, 5, 5])
    assert tail_distance(values, body, moved, 0.1) == pytest.approx((9 - 5) / 2)
    assert tail_distance(values, body, body, 0.1) == 0
