"""The grammar of declared rules, and what each form says of a series."""

import contextlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshock.errors import InputError
from foreshock.rules.conditions import parse_condition


@pytest.mark.parametrize(
    ("text", "recent", "early", "holds"),
    [
        ("< 0.1", [0.0, 0.1], math.nan, True),
        ("<0.1", [0.1, 0.1], math.nan, False),
        ("<= 0.5", [0.5, 0.5], math.nan, True),
        ("> 3", [2.0, 5.0], math.nan, True),
        (">= -1e-3", [-0.001], math.nan, True),
        ("== 0", [0.0, 0.0], math.nan, True),
        ("== 0.3", [0.1 + 0.2], math.nan, True),
        ("== 0", [1e-6], math.nan, False),
        ("outside(0.8, 1.2)", [0.7], math.nan, True),
        ("outside(0.8,1.2)", [1.2], math.nan, False),
        ("outside(-2, -1)", [0.0], math.nan, True),
        ("drop(50%)", [0.5], 1.0, True),
        ("drop(50%)", [0.51], 1.0, False),
        ("drop(50 %)", [-1.5], -1.0, True),
        ("rise(200%)", [3.0], 1.0, True),
        ("rise(200%)", [2.9], 1.0, False),
        ("rise( 10% )", [-0.8], -1.0, True),
        ("spike(5x)", [0.1, 5.0, 0.1], 1.0, True),
        ("spike(5x)", [4.0, 4.0], 1.0, False),
    ],
)
def test_each_form_holds_when_it_says(text, recent, early, holds):
    condition = parse_condition(text)
    assert condition.holds(np.array(recent), early) is holds
    assert condition.is_relative is not math.isnan(early)
    assert condition.text == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected < a, <= a,"),
        ("0.1", "expected < a"),
        ("< x", "expected < a"),
        ("!= 3", "expected < a"),
        ("< 1 or > 3", "expected < a"),
        ("drop(50)", "expected < a"),
        ("spike(5%)", "expected < a"),
        ("outside(2, 1)", "expected outside(a, b) with a below b"),
        ("drop(0%)", "expected drop(N%) with N above 0"),
        ("rise(-5%)", "expected rise(N%) with N above 0"),
        ("spike(1x)", "expected spike(Nx) with N above 1"),
    ],
)
def test_what_is_no_condition_is_refused_with_what_was_got_and_expected(text, expected):
    with pytest.raises(InputError) as refused:
        parse_condition(text)
    assert f"got {text!r}, {expected}" in str(refused.value)


@given(st.text(max_size=30) | st.text("<>=!() 0123456789.,%xeoutsidespikerdp-", max_size=16))
def test_any_other_text_is_refused_and_nothing_else_happens(text):
    with contextlib.suppress(InputError):
        assert parse_condition(text).text == text.strip()
