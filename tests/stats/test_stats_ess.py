from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshock.stats.ess import ess_share


@given(st.lists(st.floats(-300, 300), min_size=1, max_size=50), st.floats(-250, 250), st.sampled_from([3, math.inf]))
def test_bounds_and_scale(log_ratio: list[float], shift: float, cap: float) -> None:
    value = ess_share(log_ratio, cap)
    assert 1 / len(log_ratio) * (1 - 1e-9) <= value <= 1 + 1e-9
    assert ess_share(np.array(log_ratio) + shift, math.inf) == pytest.approx(ess_share(log_ratio, math.inf), rel=1e-6)


def test_known_values() -> None:
    assert ess_share([0.0] * 10) == 1
    assert ess_share([200.0] + [-100.0] * 9) == pytest.approx(0.1)
    assert ess_share(np.log([1.0, 2.0, 3.0])) == pytest.approx(36 / (3 * 14))
    assert ess_share([1.0, 50.0], cap=1.0) == pytest.approx(1)
    assert math.isnan(ess_share([]))
