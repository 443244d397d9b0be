from __future__ import annotations

import math

import pytest

from foreshock.stats.diagnostic import Diagnostic


def test_a_plain_value_is_ok() -> None:
    assert Diagnostic(0.5, 10).ok
    assert Diagnostic(0.5, 10) == Diagnostic(value=0.5, n=10, reason="")


def test_a_value_with_a_reason_is_a_caution() -> None:
    caution = Diagnostic(0.5, 10, "heavy tail")
    assert not caution.ok
    assert caution.value == 0.5


def test_nan_needs_a_reason() -> None:
    unknown = Diagnostic.unknown(3, "too few tokens")
    assert math.isnan(unknown.value)
    assert (unknown.n, unknown.reason, unknown.ok) == (3, "too few tokens", False)
    with pytest.raises(ValueError, match="a reason is expected"):
        Diagnostic(math.nan, 3)
