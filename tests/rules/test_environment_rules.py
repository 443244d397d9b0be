"""Falls of the reward beside a still policy, slow steps, void turns, alike completions, and slow climbs."""

import msgspec
import numpy as np
import pytest

from foreshock.rules import (
    clip_fraction,
    diversity,
    effective_sample_size,
    environment_fault,
    late_drift,
    reward_concentration,
    reward_length,
    slow_steps,
    void_turns,
)
from foreshock.run import Run

LEVELS = {
    "reward": (0.83, 0.04), "reward_std": (0.3, 0.03), "entropy": (1.0, 0.05), "grad_norm": (0.5, 0.05),
    "kl": (0.1, 0.01), "completions/mean_length": (300.0, 15.0), "completions/min_length": (100.0, 10.0),
    "completions/max_length": (600.0, 20.0), "clip_ratio/region_mean": (0.04, 0.006), "step_time": (40.0, 3.0),
    "void_turns": (0.02, 0.01), "rollout_corr/rollout_is_eff_sample_size": (0.7, 0.03),
}  # fmt: skip


def make_run(rows=200, seed=0, **changes):
    """A stationary run; ``changes`` map a key, with ``__`` for ``/``, to a function of (values, growth 0 … 1)."""
    rng, run = np.random.default_rng(seed), Run()
    growth = np.clip((np.arange(rows) - 0.4 * rows) / (0.4 * rows), 0, 1)
    table = {key: mean + sd * rng.normal(size=rows) for key, (mean, sd) in LEVELS.items()}
    for name, change in changes.items():
        key = name.replace("__", "/")
        table[key] = change(table[key], growth)
    for row in range(rows):
        run.append_scalars(row + 1, {key: float(values[row]) for key, values in table.items()})
    return run


def only(rule, run):
    (finding,) = rule.check(run).findings
    assert finding.rule == rule.ID
    assert msgspec.json.encode(finding.to_dict())
    return finding


def outage(values, growth):
    fallen = values.copy()
    fallen[120:] = np.maximum(values[120:] - 0.71 * np.minimum(np.arange(values.size - 120) / 4, 1), 0)
    return fallen


def test_a_sudden_fall_beside_a_still_policy_points_at_the_environment():
    finding = only(environment_fault, make_run(reward=outage))
    assert finding.severity == "critical"
    assert finding.cause == "environment fault"
    assert finding.steps[0] == pytest.approx(121, abs=4)
    assert "Policy metrics did not move (entropy, grad_norm, kl, completions/mean_length)" in finding.summary


def test_a_fall_that_recovered_is_a_note():
    def recovered(values, growth):
        return np.concatenate([outage(values, growth)[:160], values[160:]])

    finding = only(environment_fault, make_run(reward=recovered))
    assert finding.severity == "note"
    assert "has recovered since" in finding.summary


def test_a_fall_with_the_policy_or_over_many_steps_is_not_the_environment():
    moved = make_run(reward=outage, entropy=lambda v, g: np.where(np.arange(v.size) < 120, v, v + 0.5))
    assert environment_fault.check(moved).findings == ()
    slow = make_run(reward=lambda v, g: v - 0.7 * g)
    assert environment_fault.check(slow).findings == ()
    assert environment_fault.check(make_run()).judged


def test_a_clip_fraction_that_climbs_is_found_and_a_high_one_is_not():
    finding = only(clip_fraction, make_run(clip_ratio__region_mean=lambda v, g: v + 0.2 * g))
    assert finding.severity == "warning"
    assert (
        "At this rate it reaches 50%"
        in only(
            clip_fraction, make_run(clip_ratio__region_mean=lambda v, g: v + 0.3 * np.arange(v.size) / v.size)
        ).summary
    )
    assert clip_fraction.check(make_run(clip_ratio__region_mean=lambda v, g: v + 0.3)).findings == ()
    assert only(clip_fraction, make_run(clip_ratio__region_mean=lambda v, g: v / 50 * (1 + 9 * g))).severity == "note"


def test_a_slow_climb_of_gradient_and_clip_fraction_together_is_a_warning():
    def climb(values, growth):
        return values * (1 + np.arange(values.size) / values.size)

    finding = only(late_drift, make_run(2000, grad_norm=climb, clip_ratio__region_mean=climb))
    assert finding.severity == "warning"
    assert "grad_norm (×1.7) and clip_ratio/region_mean (×1.7) have climbed slowly" in finding.summary
    assert only(late_drift, make_run(2000, grad_norm=climb)).severity == "note"
    assert late_drift.check(make_run(2000)).judged
    assert late_drift.check(make_run(900, grad_norm=climb)).judged == ()


def test_rewards_that_become_equal_are_found_unless_the_task_is_solved():
    narrower = {"reward_std": lambda v, g: v * (1 - 0.9 * g)}
    assert only(reward_concentration, make_run(**narrower)).severity == "warning"
    solved = make_run(**narrower, reward=lambda v, g: v + 0.4 * g)
    assert reward_concentration.check(solved).findings == ()
    assert reward_concentration.check(make_run()).judged


def test_a_reward_that_is_the_length_is_found():
    rng = np.random.default_rng(1)
    length = 200 * (1 + np.arange(200) / 100) + 20 * rng.normal(size=200)
    run = make_run(completions__mean_length=lambda v, g: length, reward=lambda v, g: length / 1000)
    finding = only(reward_length, run)
    assert finding.severity == "warning"
    assert "Row by row the reward goes with the length (correlation 1.00)" in finding.summary
    both_learn = make_run(completions__mean_length=lambda v, g: length, reward=lambda v, g: v + g)
    assert reward_length.check(both_learn).findings == ()


def test_a_reward_for_empty_completions_is_found():
    length = np.where(np.arange(200) < 120, 300 + 30 * np.random.default_rng(1).normal(size=200), 0.0)
    run = make_run(completions__mean_length=lambda v, g: length, reward=lambda v, g: 1 - length / 1000)
    assert "against the length (correlation -1.00)" in only(reward_length, run).summary


def test_completions_of_one_length_with_less_entropy_are_alike():
    alike = {
        "completions__min_length": lambda v, g: v + 190 * g,
        "completions__max_length": lambda v, g: v - 285 * g,
    }
    finding = only(diversity, make_run(**alike, entropy=lambda v, g: v * (1 - 0.6 * g)))
    assert finding.severity == "warning"
    assert "Beside it: the entropy has fallen" in finding.summary
    assert diversity.check(make_run(**alike)).findings == ()


@pytest.mark.parametrize(("factor", "severity"), [(2.0, "note"), (5.0, "warning")])
def test_slow_steps_are_a_note_and_very_slow_ones_a_warning(factor, severity):
    run = make_run(step_time=lambda v, g: np.where(np.arange(v.size) < 100, v, factor * v))
    assert only(slow_steps, run).severity == severity


def test_steps_that_take_longer_because_completions_are_longer_are_in_order():
    run = make_run(step_time=lambda v, g: v * (1 + 2 * g), completions__mean_length=lambda v, g: v * (1 + 2 * g))
    assert slow_steps.check(run).findings == ()


def test_void_turns_that_rise_are_found():
    assert only(void_turns, make_run(void_turns=lambda v, g: np.clip(v, 0, 1) + 0.3 * g)).severity == "warning"
    assert only(void_turns, make_run(void_turns=lambda v, g: np.clip(v, 0, 1) + 0.7 * g)).severity == "critical"
    assert void_turns.check(make_run(void_turns=lambda v, g: np.clip(v, 0, 1))).judged


def test_a_fallen_effective_sample_size_is_a_note():
    run = make_run(rollout_corr__rollout_is_eff_sample_size=lambda v, g: v * (1 - 0.85 * g))
    assert only(effective_sample_size, run).severity == "note"
