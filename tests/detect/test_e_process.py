from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshock.detect.e_process import KEPT_PER_STEP, EDetector, e_detector, threshold
from foreshock.errors import InputError

finite = st.floats(-1e6, 1e6, allow_nan=False)
values_with_gaps = st.lists(st.one_of(finite, st.sampled_from([math.nan, math.inf, -math.inf])), max_size=40)


def by_the_equation(values: list[float], steps_per_block: int, reference_blocks: int, stake: float) -> list[float]:
    """M from the definition, with ranks counted by brute force."""
    evidence, found, seen = 0.0, [], []
    kept = KEPT_PER_STEP**steps_per_block
    for value in values:
        if not math.isfinite(value):
            found.append(math.nan)
            continue
        if len(seen) >= reference_blocks:
            smaller = sum(earlier < value for earlier in seen)
            evidence = kept * (1 + stake * (2 * smaller / len(seen) - 1)) * (1 + evidence)
        seen.append(value)
        found.append(evidence)
    return found


@given(values_with_gaps, st.integers(1, 20), st.integers(1, 6), st.floats(0.1, 1))
def test_pure_incremental_and_brute_force_agree(values: list[float], steps: int, reference: int, stake: float) -> None:
    state = EDetector(steps, reference, stake)
    incremental = [state.update(value) for value in values]
    np.testing.assert_array_equal(e_detector(values, steps, reference, stake), incremental)
    np.testing.assert_array_equal(incremental, by_the_equation(values, steps, reference, stake))
    assert state.judged + state.skipped == len(values)
    assert state.skipped == sum(not math.isfinite(value) for value in values)


@given(st.lists(st.integers(-1000, 1000), max_size=40))
def test_only_the_order_counts(values: list[int]) -> None:
    np.testing.assert_array_equal(e_detector(values), e_detector([math.exp(value / 100) for value in values]))


@given(st.lists(st.integers(0, 3), min_size=6, max_size=30), st.randoms())
def test_ties_never_add_evidence(values: list[int], random: object) -> None:
    order = np.random.default_rng(random.randint(0, 2**32)).permutation(len(values))  # type: ignore[attr-defined]
    broken = [value + 1e-6 * int(place) for value, place in zip(values, order, strict=True)]
    # Breaking ties can raise single ranks among tied blocks, never lower one, at every block at once.
    assert (e_detector(values) <= e_detector(broken) + 1e-12).all()


def test_the_bet_is_fair_on_uniform_ranks() -> None:
    for earlier in (4, 5, 17):
        history = list(range(earlier))
        outcomes = [e_detector([*history, rank - 0.5])[-1] for rank in range(earlier + 1)]
        before = e_detector(history)[-1]
        assert np.mean(outcomes) == pytest.approx(KEPT_PER_STEP**10 * (1 + before))


def test_nothing_and_too_little() -> None:
    assert e_detector([]).shape == (0,)
    assert e_detector([3.0, 1.0, 2.0, 5.0]).tolist() == [0, 0, 0, 0]


def test_constant_blocks_are_no_evidence() -> None:
    assert e_detector(np.ones(500)).max() < 1


def test_skipped_blocks_change_nothing_else() -> None:
    values = np.random.default_rng(0).normal(size=30)
    with_gaps = np.insert(values, [0, 3, 7, 30], [math.nan, math.inf, math.nan, -math.inf])
    evidence = e_detector(with_gaps)
    np.testing.assert_array_equal(evidence[np.isfinite(with_gaps)], e_detector(values))
    assert np.isnan(evidence[~np.isfinite(with_gaps)]).all()


def test_mean_number_of_blocks_to_an_alarm_is_at_least_the_threshold() -> None:
    level = threshold(steps_per_block=1, steps_per_false_alarm=20)
    lengths = []
    for seed in range(400):
        state, draw = EDetector(steps_per_block=1), np.random.default_rng([7, seed])
        blocks = 0
        while state.value < level:
            state.update(draw.standard_t(2))
            blocks += 1
        lengths.append(blocks)
    assert np.mean(lengths) - 2 * np.std(lengths) / math.sqrt(len(lengths)) >= level


def test_growth_is_found_within_a_short_run_and_decline_is_not() -> None:
    noise = np.random.default_rng(1).normal(size=(200, 24)) * 0.14
    trend = np.linspace(0, 0.6, 24)
    level = threshold(steps_per_block=5)
    grown = [e_detector(row + trend, 5).max() >= level for row in noise]
    shrunk = [e_detector(row - trend, 5).max() >= level for row in noise]
    assert np.mean(grown) > 0.8
    assert np.mean(shrunk) == 0


def test_threshold_is_in_blocks() -> None:
    assert threshold(10, 1000) == 100
    with pytest.raises(InputError, match="got steps_per_block=0"):
        threshold(0)


@pytest.mark.parametrize(("steps", "reference", "stake"), [(0, 4, 0.5), (10, 0, 0.5), (10, 4, 0.0), (10, 4, 1.5)])
def test_settings_are_checked(steps: int, reference: int, stake: float) -> None:
    with pytest.raises(InputError, match=f"got steps_per_block={steps}, reference_blocks={reference}, stake={stake}"):
        EDetector(steps, reference, stake)
