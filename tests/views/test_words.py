from __future__ import annotations

import math
from dataclasses import replace

import pytest

from foreshock.detect.series_change import Change
from foreshock.views import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.58432, "0.584"), (1.2, "1.20"), (12.345, "12.3"), (151.2, "151"), (60000, "60,000"), (123456.0, "123,456"),
        (-0.00943, "−0.00943"), (1.5e-7, "1.50e-07"), (0.0, "0"), (math.nan, "–"), (math.inf, "∞"), (-math.inf, "−∞"),
        (None, "–"), (True, "True"), (False, "False"), ("31–70", "31–70"), ((1, 2.5), "1, 2.5"), ([], "–"),
    ],
)  # fmt: skip
def test_values_are_shown_with_three_digits_and_counts_in_full(value: object, text: str) -> None:
    assert words.shown(value) == text


def test_columns_keep_the_order_of_the_evidence_rows() -> None:
    rows = ({"b": 1, "a": "x"}, {"c": 2.0, "a": "y", "b": None})
    assert words.columns_of(rows) == ["b", "a", "c"]
    assert [words.is_numeric(rows, column) for column in "abc"] == [False, True, True]


def test_step_range() -> None:
    assert (words.step_range(3, 3), words.step_range(3, 9)) == ("step 3", "steps 3–9")


@pytest.mark.parametrize(
    ("verdict", "kept", "sentence"),
    [
        ("critical", 2, "One critical finding and one note. One question could not be judged."),
        ("cannot_judge", 0,
         "Nothing alarming was seen, but silence is not health here. One question could not be judged."),
    ],
)  # fmt: skip
def test_a_verdict_says_what_it_means(make_diagnosis, verdict: str, kept: int, sentence: str) -> None:
    diagnosis = make_diagnosis(verdict=verdict)
    diagnosis = make_diagnosis(verdict=verdict, findings=diagnosis.findings[:kept])
    assert words.verdict_sentence(diagnosis) == sentence


def test_healthy_is_said_only_of_what_was_judged(make_diagnosis) -> None:
    diagnosis = make_diagnosis(verdict="healthy", findings=(), cannot_judge=())
    several = replace(diagnosis, judged=("all is well",) * 7)
    assert words.verdict_sentence(several) == "7 questions could be judged, and no rule raised a warning."
    assert words.verdict_sentence(replace(diagnosis, judged=())) == "No rule raised a warning."


def test_an_aggregate_without_enough_values_is_not_called_unchanged() -> None:
    assert words.change_words(Change(False, None, math.nan, math.nan, "too few values")) == "cannot be judged"
    assert words.change_words(Change(False, None, 1.0, 0.1)) == "no change"
    assert words.change_words(Change(True, 90, 2.0, 3.0)) == "up ×2 since step 90"
    assert words.change_words(Change(True, 90, 0.625, -3.0)) == "down ×0.625 since step 90"


@pytest.mark.parametrize("ratio", [math.nan, 0.5, -2.0])
def test_a_move_around_or_below_zero_is_not_told_as_a_ratio(ratio: float) -> None:
    assert words.change_words(Change(True, 90, ratio, 3.14)) == "up by 3.1 standard deviations since step 90"
