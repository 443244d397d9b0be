"""Sampler against trainer: jump, drift, bias and the benign offset; and the same by slice."""

from dataclasses import replace

import numpy as np
import pytest

from foreshock.rules import mismatch, mismatch_slices
from foreshock.rules.finding import RuleResult
from foreshock.run import Block, Run
from foreshock.sketch import LogRatioSketch
from foreshock.sources.keys import canonical_names

DIFFERENCE = "sampling/sampling_logp_difference/mean"


def logged(**columns):
    run = Run()
    columns = {key.replace("__", "/"): values for key, values in columns.items()}
    for row in range(len(next(iter(columns.values())))):
        run.append_scalars(row + 1, {key: float(values[row]) for key, values in columns.items()})
    return run


def noisy(level, rows=200, spread=0.15, seed=0):
    return level * np.exp(spread * np.random.default_rng(seed).normal(size=rows))


def test_stale_weights_are_a_jump_that_stays_even_at_step_three():
    values = noisy(0.2, 40, 0.1)
    values[:2] = 0.010, 0.018  # as was reported
    (finding,) = mismatch.check(logged(**{DIFFERENCE: values})).findings
    assert finding.severity == "critical"
    assert finding.steps[0] == 3
    assert "jumped at step 3, from at most 0.018 to 0.2" in finding.summary
    assert finding.name == "stale weights"
    assert "not a slow drift" in finding.exclusions[0]


def test_a_jump_that_went_back_is_no_finding():
    values = noisy(0.015, 200)
    values[80:95] *= 10
    assert mismatch.check(logged(**{DIFFERENCE: values})).findings == ()


def test_a_drift_of_the_engine_is_found_with_the_step_that_separates_it_from_the_policy():
    values = noisy(0.011, 200) * np.exp(np.log(5) * np.clip((np.arange(200) - 60) / 140, 0, 1))
    (finding,) = mismatch.check(logged(**{DIFFERENCE: values})).findings
    assert finding.severity == "warning"
    assert "still rising" in finding.summary
    assert "learning rate 0" in finding.next_check


@pytest.mark.parametrize("level", [0.14, 1.75])
def test_a_mismatch_that_is_high_but_stable_is_in_order(level):
    result = mismatch.check(logged(mismatch_kl=noisy(level, 62, 0.3)))
    assert result.findings == ()
    assert result.judged == ("sampler and trainer agree as at the start (mismatch_kl)",)


def test_a_growth_within_numerics_is_in_order():
    values = noisy(1e-5, 200) * (1 + 9 * np.arange(200) / 200)
    assert mismatch.check(logged(mismatch_kl=values)).findings == ()


def test_a_constant_bias_is_said_to_be_no_drift():
    ratio = 0.896 + 0.003 * np.random.default_rng(0).normal(size=60)
    (noted,) = mismatch.check(logged(sampling__importance_sampling_ratio__mean=ratio)).findings
    assert noted.severity == "note"  # the logged ratio may be truncated
    k3 = noisy(0.05, 60)
    (warned,) = mismatch.check(logged(mismatch_kl=k3, rollout_corr__kl=k3 - (ratio - 1))).findings
    assert warned.severity == "warning"
    assert "0.896 since the first row: a bias, not drift" in warned.summary
    assert mismatch.check(logged(mismatch_kl=k3, rollout_corr__kl=k3)).findings == ()


@pytest.mark.parametrize(
    ("logged_keys", "read"),
    [
        (["rollout_corr/kl", "rollout_corr/k3_kl"], ["rollout_corr/kl", "mismatch_kl"]),  # verl
        (["rollout_correction/kl", "rollout_correction/k3_kl"], ["rollout_corr/kl", "mismatch_kl"]),  # ms-swift
        (["mismatch_kl/all/mean"], ["mismatch_kl"]),  # prime-rl
        (["gen_kl_error", "sampling_importance_ratio"], ["mismatch_kl", "sampling/importance_sampling_ratio/mean"]),
        (["vllm_kl"], ["mismatch_kl"]),  # OpenRLHF
        (["train/train_rollout_logprob_abs_diff"], [DIFFERENCE]),  # slime
        (["policy/rollout_train_logprobs_abs_diff_mean"], [DIFFERENCE]),  # SkyRL
    ],
)
def test_the_keys_of_other_trainers_are_read(logged_keys, read):
    assert list(canonical_names({key: {0} for key in logged_keys}).values()) == read


def blocks(text, post, pair="old/rollout", tokens=4000):
    """A run whose log-ratios are drawn by a function of the generator and a count, per slice."""
    rng, run = np.random.default_rng(0), Run()
    for index in range(4):
        sketch = LogRatioSketch()
        for slice_id, draw in enumerate((text, post)):
            sketch.update(draw(rng, tokens).astype(np.float32), np.full(tokens, slice_id))
        run.blocks.append(Block(index, 10 * index + 1, 10 * index + 10, {pair: sketch}))
    return run


def clean(rng, n):
    return rng.normal(0, 0.02, n)


def wrong_tokens(rng, n):
    return np.where(rng.random(n) < 0.04, rng.normal(-3, 1, n), clean(rng, n))


@pytest.mark.parametrize(("unscored", "severities"), [(1, []), (10, ["warning"]), (300, ["critical"])])
def test_zeros_where_the_trainer_is_not_certain_are_a_mask_error(unscored, severities):
    run = blocks(clean, clean)
    counts = {"response_tokens": (5_000.0,), "unscored_tokens": (float(unscored),)}
    run.blocks[:] = [replace(block, counters=counts) for block in run.blocks]
    findings = mismatch_slices.check(run).findings
    assert [finding.severity for finding in findings] == severities
    assert {finding.name for finding in findings} <= {"mask error"}


def test_a_gap_after_tool_results_alone_is_a_second_tokenisation():
    (finding,) = mismatch_slices.check(blocks(clean, wrong_tokens)).findings
    assert finding.severity == "warning"
    assert (finding.slice, finding.name) == ("post_tool", "re-tokenisation")
    assert "as if tool turns had been tokenised again" in finding.summary
    assert [row["slice"] for row in finding.evidence] == ["text_only", "post_tool"]


def test_a_gap_in_both_slices_is_the_engine():
    (finding,) = mismatch_slices.check(blocks(wrong_tokens, wrong_tokens, pair="policy/rollout")).findings
    assert finding.slice == ""
    assert "not the tool turns" in finding.summary


def test_renormalised_log_probs_are_a_bias_in_every_slice():
    (finding,) = mismatch_slices.check(blocks(*[lambda rng, n: clean(rng, n) + np.log(0.9)] * 2)).findings
    assert "0.900 (text_only) and 0.900 (post_tool) in the first blocks: a bias, not drift" in finding.summary


def test_agreement_is_in_order_and_other_pairs_and_few_tokens_say_nothing():
    assert mismatch_slices.check(blocks(clean, clean)).judged
    assert mismatch_slices.check(blocks(clean, wrong_tokens, pair="policy/ref")) == RuleResult()
    assert mismatch_slices.check(blocks(clean, wrong_tokens, tokens=40)) == RuleResult()
