from __future__ import annotations

import numpy as np

from foreshock.stats.ecdf import ecdf


def test_ecdf_of_counted_values() -> None:
    x, share = ecdf(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1, 0, 2, 1]))
    assert x.tolist() == [1.0, 3.0, 4.0]
    assert share.tolist() == [0.25, 0.75, 1.0]


def test_ecdf_of_nothing() -> None:
    x, share = ecdf(np.array([1.0]), np.array([0]))
    assert x.size == share.size == 0
