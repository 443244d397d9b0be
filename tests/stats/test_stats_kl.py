from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshock.stats.kl import k1, k2, k3


def test_each_estimates_the_divergence_of_two_normals() -> None:
    shift = 0.3  # KL(N(shift, 1) ‖ N(0, 1)) = shift² / 2, in both directions
    x = np.random.default_rng(0).normal(shift, 1, 2_000_000)
    log_ratio = x * shift - shift**2 / 2
    assert k1(log_ratio).mean() == pytest.approx(shift**2 / 2, rel=0.02)
    assert k3(log_ratio).mean() == pytest.approx(shift**2 / 2, rel=0.02)
    assert k2(log_ratio).mean() == pytest.approx(shift**2 / 2, rel=0.05)
    assert k3(log_ratio).std() < k1(log_ratio).std()


@given(st.floats(-700, 700))
def test_k3_is_never_negative(r: float) -> None:
    assert k3(r) >= 0


def test_values() -> None:
    r = np.array([[0.0, 1.0], [-1.0, -1e4]])
    assert k1(r).tolist() == r.tolist()
    assert k2([2.0]).tolist() == [2.0]
    assert k3(r)[0].tolist() == pytest.approx([0.0, np.exp(-1)])
    assert k3(r)[1, 1] == np.inf
