from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshock.detect.e_process import REFERENCE_BLOCKS, e_detector
from foreshock.detect.growth import LARGEST_REFERENCE, LATEST_BLOCKS, STANDARD_ERRORS, Growth, GrowthBeyond
from foreshock.stats.diagnostic import Diagnostic


def growth_of(values, steps_per_block=10):
    state = Growth(steps_per_block)
    for value in values:
        state.update(float(value))
    return state


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=60))
def test_size_and_evidence_are_those_of_the_whole_series(values):
    state = growth_of(values)
    assert state.judged == len(values)
    assert state.evidence == e_detector(values)[-1]
    if len(values) < LATEST_BLOCKS + REFERENCE_BLOCKS:
        assert state.reference == 0
        assert math.isnan(state.size)
        assert math.isnan(state.errors)
    else:
        third = min(max(len(values) // 3, REFERENCE_BLOCKS), LARGEST_REFERENCE)
        reference = np.mean(values[:third])
        assert state.size == pytest.approx(np.mean(values[-LATEST_BLOCKS:]) - reference, abs=1e-6)


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_standard_error_is_about_that_of_the_means(rho):
    found = []
    for seed in range(300):
        noise = np.random.default_rng(seed).normal(size=60)
        for block in range(1, 60):
            noise[block] = rho * noise[block - 1] + math.sqrt(1 - rho * rho) * noise[block]
        found.append(growth_of(noise).errors)
    assert 0.8 < np.std(found) < 1.6


def test_growth_at_a_constant_rate_stands_out_and_noise_does_not():
    noise = np.random.default_rng(0).normal(size=(200, 40))
    assert np.mean([growth_of(row).errors >= STANDARD_ERRORS for row in noise]) < 0.03
    assert np.mean([growth_of(row + 0.15 * np.arange(40)).errors >= STANDARD_ERRORS for row in noise]) > 0.95
    assert max(growth_of(row - 0.15 * np.arange(40)).errors for row in noise) < 0


def test_a_constant_series_has_not_grown_and_a_step_without_noise_has():
    assert growth_of([1.0] * 30).errors == 0
    assert growth_of([1.0] * 20 + [2.0] * 8).size == pytest.approx(1.0)


def beyond_of(own, other):
    state = GrowthBeyond(10)
    for value, reference in zip(own, other, strict=True):
        state.update(Diagnostic(value, 1), Diagnostic(value - reference, 1))
    return state


def test_growth_beyond_another_slice_needs_both_to_have_grown():
    flat, rising = np.random.default_rng(1).normal(size=(2, 40)) * 0.1
    rising = rising + 0.1 * np.arange(40)
    grown = beyond_of(rising, flat)
    assert grown.errors > STANDARD_ERRORS
    assert grown.size == min(grown.own.size, grown.beyond.size)
    assert grown.evidence == min(grown.own.evidence, grown.beyond.evidence) > 100
    for other in (beyond_of(rising, rising + flat), beyond_of(flat, -rising)):
        assert other.errors < STANDARD_ERRORS
        assert other.evidence < 100


def test_unknown_values_are_skipped_and_leave_no_growth_to_speak_of():
    state = GrowthBeyond(10)
    for block in range(30):
        state.update(Diagnostic(float(block), 1), Diagnostic.unknown(0, "no tokens"))
    assert state.own.judged == 30
    assert state.beyond.judged == 0
    assert math.isnan(state.size)
    assert math.isnan(state.errors)
