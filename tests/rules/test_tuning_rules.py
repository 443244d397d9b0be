"""Fine-tuning and preference training: loss, evaluation, margins and log-probabilities."""

import math

import msgspec
import numpy as np
import pytest

from foreshock.rules import (
    OVER_SERIES,
    kto_balance,
    likelihood_displacement,
    loss_plateau,
    loss_rise,
    margin_collapse,
    overfitting,
    preference_chance,
)
from foreshock.run import Run

ROWS = 300
GROWTH = np.clip((np.arange(ROWS) - 120) / 120, 0, 1)
LEARNED = 1 - np.exp(-np.arange(ROWS) / 40)


def logged(**columns):
    run = Run()
    columns = {key.replace("__", "/"): np.broadcast_to(values, ROWS) for key, values in columns.items()}
    for row in range(ROWS):
        values = {key: float(column[row]) for key, column in columns.items() if not math.isnan(column[row])}
        run.append_scalars(row + 1, values)
    return run


def noise(seed=0, size=1.0):
    return size * np.random.default_rng(seed).normal(size=ROWS)


def tuned(**changes):
    return logged(**{"loss": 2.2 - LEARNED + noise(0, 0.05), "grad_norm": 0.8 + noise(1, 0.1), **changes})


def preferred(**changes):
    """DPO that learns."""
    margin = 1.2 * LEARNED + noise(2, 0.08)
    columns = {
        "loss": np.log1p(np.exp(-margin)) + noise(0, 0.02),
        "rewards/margins": margin,
        "rewards/accuracies": 0.5 + 0.3 * LEARNED + noise(3, 0.04),
        "rewards/chosen": 0.3 * LEARNED + noise(4, 0.05),
        "rewards/rejected": -0.9 * LEARNED + noise(5, 0.05),
        "logps/chosen": -180 + noise(6, 8.0),
        "logps/rejected": -210 - 9 * LEARNED + noise(7, 8.0),
    }
    return logged(**{**columns, **{key.replace("__", "/"): values for key, values in changes.items()}})


def only(rule, run):
    (finding,) = rule.check(run).findings
    assert finding.rule == rule.ID
    assert msgspec.json.encode(finding.to_dict())
    return finding


@pytest.mark.parametrize("run", [tuned(), preferred()], ids=["SFT", "DPO"])
def test_runs_that_learn_have_no_warning_and_say_what_was_judged(run):
    results = [rule.check(run) for rule in OVER_SERIES]
    assert {finding.severity for result in results for finding in result.findings} <= {"note"}
    assert sum(len(result.judged) for result in results) >= 2


# Loss


def test_a_loss_that_jumps_and_stays_is_found_with_its_lowest_level():
    finding = only(loss_rise, tuned(loss=2.2 - LEARNED + 0.9 * (np.arange(ROWS) >= 200) + noise(0, 0.05)))
    assert finding.severity == "warning"
    assert "has risen from 1.2" in finding.summary
    assert finding.steps[0] == pytest.approx(201, abs=10)


def test_a_slow_divergence_is_found_and_doubled_it_is_critical():
    assert only(loss_rise, tuned(loss=2.2 - LEARNED + 2.5 * GROWTH + noise(0, 0.05))).severity == "critical"


def test_spikes_that_come_back_are_a_note():
    loss = 2.2 - LEARNED + noise(0, 0.05)
    loss[[90, 180]] = 4.0
    finding = only(loss_rise, tuned(loss=loss))
    assert finding.severity == "note"
    assert "2 spike(s), the last at step 181 (4)" in finding.summary


def test_the_loss_of_a_run_with_a_reward_is_not_judged():
    assert loss_rise.check(tuned(loss=1 + GROWTH, reward=0.5)).judged == ()


def test_a_plateau_is_a_note_unless_the_rate_has_decayed():
    loss = 2.2 - 1 + np.exp(-np.arange(ROWS) / 20) + noise(0, 0.005)
    assert only(loss_plateau, tuned(loss=loss, learning_rate=1e-5)).severity == "note"
    assert loss_plateau.check(tuned(loss=loss, learning_rate=np.linspace(1e-5, 0, ROWS))).findings == ()


def every_tenth(values):
    return np.where(np.arange(ROWS) % 10 == 9, values, np.nan)


def test_an_evaluation_that_turns_while_the_loss_falls_is_found():
    falling = 2.2 - 0.004 * np.arange(ROWS) + noise(0, 0.03)
    turning = every_tenth(2.2 - 0.5 * np.minimum(np.arange(ROWS) / 120, 1) + 0.4 * GROWTH + noise(8, 0.01))
    finding = only(overfitting, tuned(loss=falling, eval_loss=turning))
    assert finding.severity == "warning"
    assert 100 <= finding.steps[0] <= 140
    flat = every_tenth(1.7 + noise(8, 0.01))
    assert overfitting.check(tuned(loss=falling, eval_loss=flat)).judged
    rising_too = tuned(loss=1 + GROWTH, eval_loss=turning)
    assert overfitting.check(rising_too).findings == ()


def test_in_preference_training_an_evaluation_loss_alone_is_a_note_and_a_falling_accuracy_a_warning():
    loss = every_tenth(0.69 - 0.2 * np.minimum(np.arange(ROWS) / 120, 1) + 0.3 * GROWTH)
    assert only(overfitting, preferred(eval_loss=loss)).severity == "note"
    accuracy = every_tenth(0.5 + 0.25 * np.minimum(np.arange(ROWS) / 120, 1) - 0.15 * GROWTH)
    assert only(overfitting, preferred(eval_rewards__accuracies=accuracy)).severity == "warning"


# Preference


def test_a_loss_at_log_two_without_margin_is_at_chance():
    run = preferred(
        loss=math.log(2) + noise(0, 0.004), rewards__margins=noise(2, 0.03), rewards__accuracies=0.5 + noise(3, 0.06)
    )
    finding = only(preference_chance, run)
    assert finding.severity == "warning"
    assert "(loss 0.69" in finding.summary
    assert preference_chance.check(preferred()).judged


def test_small_margins_with_good_accuracies_are_not_at_chance():
    assert preference_chance.check(preferred(rewards__margins=0.02 + noise(2, 0.01))).findings == ()


def test_margins_that_collapse_with_the_accuracies_are_found():
    collapsed = {"rewards__margins": 1.2 * LEARNED - 1.0 * GROWTH + noise(2, 0.08)}
    accuracies = 0.5 + 0.3 * LEARNED - 0.2 * GROWTH + noise(3, 0.04)
    finding = only(margin_collapse, preferred(**collapsed, rewards__accuracies=accuracies))
    assert finding.severity == "warning"
    assert "and rewards/accuracies from 0." in finding.summary
    assert margin_collapse.check(preferred(**collapsed)).findings == ()


def test_both_answers_becoming_less_likely_is_a_note_and_far_a_warning():
    def displaced(by):
        return preferred(
            logps__chosen=-180 - by * GROWTH + noise(6, 8.0), logps__rejected=-210 - 1.5 * by * GROWTH + noise(7, 8.0)
        )

    assert only(likelihood_displacement, displaced(40)).severity == "note"
    assert only(likelihood_displacement, displaced(150)).severity == "warning"
    assert likelihood_displacement.check(preferred()).judged


def kto(chosen, rejected):
    return logged(**{"rewards/chosen": chosen, "rewards/rejected": rejected, "rewards/margins": 1.0, "loss": 0.5})


def test_kto_that_learns_one_class_only_is_a_note():
    finding = only(kto_balance, kto(noise(4, 0.03), -2.0 * LEARNED + noise(5, 0.05)))
    assert finding.severity == "note"
    assert "mostly the rejected answers are learned" in finding.summary
    assert kto_balance.check(kto(0.8 * LEARNED + noise(4, 0.03), -LEARNED + noise(5, 0.05))).judged
    rare = np.where(np.arange(ROWS) % 20 == 0, 0.1, np.nan)
    assert "nearly all data is of one class" in only(kto_balance, kto(rare, noise(5, 0.05))).summary


# What the trainers really log


@pytest.mark.parametrize(
    ("module", "keys"),
    [
        ("trl.trainer.dpo_trainer", ("rewards/margins", "rewards/accuracies", "rewards/chosen", "logps/rejected")),
        ("trl.trainer.kto_trainer", ("rewards/margins", "rewards/chosen", "logps/chosen", "kl")),
        ("trl.trainer.sft_trainer", ("mean_token_accuracy", "entropy")),
        ("trl.trainer.rloo_trainer", ("clip_ratio/region_mean", "frac_reward_zero_std", "completions/clipped_ratio")),
        ("trl.trainer.grpo_trainer", ("sampling/sampling_logp_difference/mean", "tools/failure_frequency")),
        ("trl.trainer.distillation_trainer", ("completions/clipped_ratio", "tools/call_frequency", "step_time")),
        ("trl.experimental.orpo.orpo_trainer", ("rewards/margins", "rewards/accuracies", "logps/chosen", "nll_loss")),
        ("trl.experimental.cpo.cpo_trainer", ("rewards/margins", "rewards/accuracies", "logps/chosen", "nll_loss")),
        ("trl.experimental.online_dpo.online_dpo_trainer", ("objective/scores", "objective/kl", "rewards/margins")),
    ],
)
def test_the_installed_trainers_log_the_keys_that_the_rules_read(module, keys):
    import importlib.util

    with open(importlib.util.find_spec(module).origin) as file:
        source = file.read()
    assert [key for key in keys if f'{key}"' not in source] == []
