from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foreshock.detect.tail import MINIMUM_TOKENS, TAIL_SHARE, tail_contrast, tail_level, tail_shape
from foreshock.sketch import LogRatioSketch
from foreshock.stats.diagnostic import Diagnostic

Floats = NDArray[np.float64]


def sketch_of(text: Floats, post: Floats) -> LogRatioSketch:
    sketch = LogRatioSketch()
    sketch.update(np.concatenate([text, post]), np.repeat([0, 1], [text.size, post.size]))
    return sketch


def contrast_of(sketch: LogRatioSketch) -> Diagnostic:
    return tail_contrast(tail_level(sketch, "post_tool"), tail_level(sketch, "text_only"))


def shape_of(sketch: LogRatioSketch, name: str = "post_tool") -> Diagnostic:
    return tail_shape(sketch, name, tail_level(sketch, name))


def heavy(seed: int, n: int, scale: float = 1.0) -> Floats:
    return scale * np.random.default_rng(seed).standard_t(3, size=n)


@given(st.integers(0, 1000), st.integers(MINIMUM_TOKENS, 4000))
def test_level_is_the_mean_of_log_over_the_largest_two_percent(seed: int, n: int) -> None:
    tokens = heavy(seed, n)
    exact = np.log(np.sort(np.abs(tokens))[-int(TAIL_SHARE * n) :]).mean()
    found = tail_level(sketch_of(tokens, tokens[:0]), "text_only")
    assert found.ok
    assert found.n == n
    assert found.value == pytest.approx(exact, abs=0.016)  # twice the sketch's error of one quantile


@given(st.floats(0.1, 10))
def test_a_common_factor_drops_out_of_the_contrast(factor: float) -> None:
    text, post = heavy(1, 2000), heavy(2, 1500, 1.4)
    before = contrast_of(sketch_of(text, post))
    after = contrast_of(sketch_of(factor * text, factor * post))
    assert after.value == pytest.approx(before.value, abs=0.04)


def test_contrast_is_the_log_of_the_factor_between_the_slices() -> None:
    text = heavy(3, 5000)
    sketch = sketch_of(text, 1.6 * text)
    found = contrast_of(sketch)
    assert found.value == pytest.approx(math.log(1.6), abs=0.02)
    assert found.n == 5000
    assert tail_contrast(tail_level(sketch, "text_only"), tail_level(sketch, "post_tool")).value == -found.value


def test_a_heavier_tail_alone_raises_the_level() -> None:
    tokens = heavy(4, 20_000)
    stretched = np.where(np.arange(tokens.size) % 50 == 0, 6 * tokens, tokens)
    sketch = sketch_of(tokens, stretched)
    assert contrast_of(sketch).value > 0.2
    assert sketch.quantile(0.5, "post_tool").value == pytest.approx(sketch.quantile(0.5, "text_only").value, rel=0.05)


def test_the_level_is_the_mean_log_magnitude_of_the_top_two_per_cent() -> None:
    tokens = heavy(6, 3000)
    sketch = sketch_of(heavy(5, 3000), tokens)
    top = np.sort(np.abs(tokens))[-60:]
    assert tail_level(sketch, "post_tool").value == pytest.approx(np.log(top).mean(), abs=0.02)


@given(st.floats(0.1, 10))
def test_a_slice_that_stretches_as_a_whole_keeps_its_shape(factor: float) -> None:
    tokens = heavy(11, 3000)
    before, after = (shape_of(sketch_of(tokens, values)) for values in (tokens, factor * tokens))
    assert after.ok
    assert after.value == pytest.approx(before.value, abs=0.05)


def test_the_shape_is_how_far_the_largest_tokens_lie_above_the_ninetieth_percentile() -> None:
    tokens = heavy(12, 5000)
    ordered = np.sort(np.abs(tokens))
    exact = np.log(ordered[-100:]).mean() - np.log(ordered[4500])
    assert shape_of(sketch_of(tokens, tokens)).value == pytest.approx(exact, abs=0.03)
    stretched = np.where(np.arange(tokens.size) % 50 == 0, 6 * tokens, tokens)
    assert shape_of(sketch_of(tokens, stretched)).value > exact + 0.2


def test_a_slice_of_mostly_zeros_has_a_level_and_no_shape() -> None:
    tokens = np.where(np.arange(2000) % 20, 0.0, heavy(13, 2000))
    sketch = sketch_of(heavy(14, 2000), tokens)
    assert tail_level(sketch, "post_tool").ok
    found = shape_of(sketch)
    assert math.isnan(found.value)
    assert found.reason == "post_tool: 90% of the log-ratios are zero"
    assert shape_of(sketch, "text_only").ok


def test_a_slice_without_a_level_has_no_shape_for_the_same_reason() -> None:
    assert "post_tool holds 0 tokens" in shape_of(LogRatioSketch()).reason


def test_too_few_tokens_say_how_many_there_were() -> None:
    enough, few = heavy(7, MINIMUM_TOKENS), heavy(8, MINIMUM_TOKENS - 1)
    sketch = sketch_of(enough, few)
    assert tail_level(sketch, "text_only").ok
    found = contrast_of(sketch)
    assert math.isnan(found.value)
    assert found.n == MINIMUM_TOKENS - 1
    assert found.reason == "post_tool holds 499 tokens in this block; its tail needs 500"


def test_an_empty_sketch_names_both_slices() -> None:
    found = contrast_of(LogRatioSketch())
    assert math.isnan(found.value)
    assert "text_only holds 0" in found.reason
    assert "post_tool holds 0" in found.reason


@pytest.mark.parametrize("tokens", [np.zeros(2000), np.where(np.arange(2000) % 100, 0.0, 1.0)])
def test_a_tail_of_zeros_cannot_be_judged(tokens: Floats) -> None:
    tail = tail_level(sketch_of(tokens, tokens), "post_tool")
    assert math.isnan(tail.value)
    assert "98 % of the log-ratios are zero" in tail.reason.replace("98%", "98 %")


def test_a_constant_slice_has_a_level_and_no_tail() -> None:
    sketch = sketch_of(np.full(2000, 0.5), heavy(9, 2000))
    assert tail_level(sketch, "text_only").value == pytest.approx(math.log(0.5), abs=0.008)
    assert sketch.hill("text_only", share=TAIL_SHARE).value == pytest.approx(0, abs=0.001)


def test_values_that_are_not_finite_do_not_count() -> None:
    tokens = np.concatenate([heavy(10, 2000), np.full(50, np.nan), np.full(50, np.inf)])
    assert tail_level(sketch_of(tokens, tokens), "post_tool").n == 2000
