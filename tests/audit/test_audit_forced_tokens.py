from __future__ import annotations

import math

import pytest

from foreshock.audit import forced_tokens

FORCED = 5  # an id that the rollouts hold nowhere else


@pytest.mark.parametrize("log_prob", [-20.0, -math.inf, math.nan])
def test_a_token_that_is_never_likely_is_named_with_where_it_stands(tallied, healthy, log_prob: float) -> None:
    for sample in (sample for samples in healthy for sample in samples):
        place = sample.mask.index(0) - 1
        sample.ids[place] = FORCED
        sample.old[place] = log_prob
    (finding,) = forced_tokens.check(tallied(healthy)).findings
    assert finding.summary.startswith(f"Token {FORCED} is trained 96 times, and 96 times the policy held it for all")
    assert "100% of these stand beside a tool result" in finding.summary


def test_a_rare_token_that_is_likely_half_the_time_is_not(tallied, healthy) -> None:
    for number, sample in enumerate(sample for samples in healthy for sample in samples):
        sample.ids[0] = FORCED
        sample.old[0] = -20.0 if number % 2 else -0.5
    result = forced_tokens.check(tallied(healthy))
    assert not result.findings
    assert result.judged


def test_a_few_times_are_not_enough(tallied, healthy) -> None:
    for sample in healthy[0][:10]:
        sample.ids[0], sample.old[0] = FORCED, -20.0
    assert not forced_tokens.check(tallied(healthy)).findings
