from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foreshock.sketch.buckets import FRACTION_MASK, N_CELLS, WIDTHS, locate
from foreshock.sketch.moments import Buckets, non_empty


def buckets_of(values: np.ndarray) -> Buckets:
    counts, fractions = np.zeros((2, 2, N_CELLS), np.int64)
    sign, cell, fraction = locate(values)
    np.add.at(counts, (sign, cell), 1)
    np.add.at(fractions, (sign, cell), np.where(WIDTHS[cell] > 0, fraction, 0))
    return non_empty(counts, fractions)


def test_an_empty_slice_has_no_buckets() -> None:
    buckets = buckets_of(np.zeros(0, np.float32))
    assert buckets.r.size == 0
    assert buckets.total(buckets.r, buckets.r) == 0


def test_means_are_exact_and_lie_in_their_bucket() -> None:
    values = (0.3 * np.random.default_rng(0).standard_t(3, 50_000)).astype(np.float32)
    buckets = buckets_of(values)
    sign, cell, _ = locate(values)
    place = sign * N_CELLS + cell
    used, inverse = np.unique(place, return_inverse=True)
    exact = np.bincount(inverse, np.where(np.abs(values) < 2**-20, 0, values).astype(np.float64)) / np.bincount(inverse)
    assert buckets.n.size == used.size
    np.testing.assert_allclose(buckets.r, exact, rtol=1e-14, atol=1e-30)


def test_the_variance_is_that_of_an_even_spread_and_0_for_a_lone_token() -> None:
    even = buckets_of(np.linspace(1, 1 + 1 / 64, 10_000, endpoint=False, dtype=np.float32))
    assert even.variance == pytest.approx([np.var(np.linspace(1, 1 + 1 / 64, 10_000))], rel=1e-3)
    assert buckets_of(np.array([-1.003], np.float32)).variance.tolist() == [0]


@settings(max_examples=200, deadline=None)
@example(1.0, [0, FRACTION_MASK], 1)
@example(9.99, [0, FRACTION_MASK], -1)
@given(st.floats(1e-4, 50), st.lists(st.integers(0, FRACTION_MASK), min_size=1, max_size=30), st.sampled_from([-1, 1]))
def test_whatever_the_spread_the_error_has_the_stated_bound(scale: float, fractions: list[int], sign: int) -> None:
    """All tokens in one bucket, anywhere: the worst case of the module's docstring."""
    start = np.array([scale], np.float32).view(np.int32) & ~FRACTION_MASK
    values = sign * (start + np.array(fractions, np.int32)).view(np.float32)
    (n,), (m,), _ = buckets = buckets_of(values)
    assert n == len(fractions)
    r = values.astype(np.float64)
    assert buckets.total(buckets.r**2, np.full(1, 2.0)) == pytest.approx((r * r).sum(), rel=1.01 / 19_660)
    if scale <= 10:
        w2 = np.exp(2 * buckets.r)
        bound = 1.3 * m * m / 9_830  # the terms beyond the second order, too
        assert buckets.total(w2, 4 * w2) == pytest.approx(np.exp(2 * r).sum(), rel=bound)
