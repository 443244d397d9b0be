from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshock.sketch.buckets import (
    COUNT_BITS,
    COUNT_UNIT,
    EDGES,
    FRACTION_MASK,
    INF_CELL,
    LOWER,
    MAX_PENDING,
    N_BUCKETS,
    N_CELLS,
    NAN_CELL,
    RELATIVE_ERROR,
    REPRESENTATIVES,
    SHIFT,
    WIDTHS,
    locate,
)


def cells(*values: float) -> tuple[list[int], list[int]]:
    with np.errstate(over="ignore"):
        sign, cell, _ = locate(np.array(values, np.float32))
    return sign.tolist(), cell.tolist()


def test_layout() -> None:
    assert N_BUCKETS == 1728
    assert REPRESENTATIVES.shape == (N_CELLS,)
    assert EDGES[0] == 2.0**-20
    assert EDGES[-1] == 2.0**7
    assert pytest.approx(0.00775, abs=1e-5) == RELATIVE_ERROR


@given(st.floats(2.0**-20, 128, exclude_max=True, width=32), st.sampled_from([-1, 1]))
def test_a_value_lies_in_its_bucket_and_near_its_representative(value: float, sign: int) -> None:
    (row,), (cell,) = cells(sign * value)
    assert row == (sign > 0)
    assert EDGES[cell - 1] <= value < EDGES[cell]
    assert abs(REPRESENTATIVES[cell] - value) <= RELATIVE_ERROR * value * (1 + 1e-12)


def test_the_error_bound_is_reached() -> None:
    lower = EDGES[:-1]
    error = (REPRESENTATIVES[1:-1] - lower) / lower
    assert error.max() == pytest.approx(1 / 128 / (2 + 1 / 64) * 2, rel=1e-9)
    assert RELATIVE_ERROR * 0.999 < error.max() <= RELATIVE_ERROR * (1 + 1e-12)


def test_edges_start_their_bucket() -> None:
    _, cell, fraction = locate(EDGES.astype(np.float32))
    assert cell.tolist() == list(range(1, N_BUCKETS + 2))
    assert not fraction.any()
    _, below, fraction = locate(np.nextafter(EDGES.astype(np.float32), np.float32(0)))
    assert below.tolist() == list(range(0, N_BUCKETS + 1))
    assert (fraction == FRACTION_MASK).all()


@given(st.floats(2.0**-20, 128, exclude_max=True, width=32), st.sampled_from([-1, 1]))
def test_cell_and_fraction_give_the_value_back(value: float, sign: int) -> None:
    (row,), (cell,), (fraction,) = locate(np.array([sign * value], np.float32))
    assert (2 * row - 1) * (LOWER[cell] + fraction * 2.0**-SHIFT * WIDTHS[cell]) == sign * value


def test_the_packed_sum_of_the_most_tokens_comes_apart_again() -> None:
    total = MAX_PENDING * (COUNT_UNIT + FRACTION_MASK)
    assert total < 2**63
    assert (total >> COUNT_BITS, total & (COUNT_UNIT - 1)) == (MAX_PENDING, MAX_PENDING * FRACTION_MASK)


def test_special_values() -> None:
    sign, cell = cells(0.0, -0.0, 1e-30, -1e-30, 1e-45, 128, -3e38, np.inf, -np.inf, np.nan)
    assert cell == [0, 0, 0, 0, 0, N_CELLS - 1, N_CELLS - 1, INF_CELL, INF_CELL, NAN_CELL]
    assert sign[:9] == [1, 1, 1, 0, 1, 1, 0, 1, 0]


@given(st.integers(0x7F800001, 0x7FFFFFFF), st.booleans())
def test_every_nan_is_told_from_infinity(bits: int, negative: bool) -> None:
    pattern = np.array([bits | (negative << 31)], np.uint32).view(np.float32)
    assert locate(pattern)[1].tolist() == [NAN_CELL]


def test_the_input_stays_as_it_is() -> None:
    values = np.array([-0.0, 1.5], np.float32)
    locate(values)
    assert np.signbit(values[0])
    assert values[1] == 1.5
