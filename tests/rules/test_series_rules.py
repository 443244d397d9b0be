"""The rules over logged series, on runs made of TRL's keys."""

import math
import warnings

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.rules import (
    OVER_SERIES,
    dead_run,
    entropy_change,
    gradient_tail,
    kl_runaway,
    length_at_cap,
    length_change,
    reward_hacking,
    tool_failures,
    tool_use,
    update_blocked,
    zero_signal,
)
from foreshock.rules.finding import RuleResult
from foreshock.run import Run

LEVELS = {
    "reward": (0.5, 0.05), "reward_std": (0.3, 0.04), "frac_reward_zero_std": (0.3, 0.08), "entropy": (1.0, 0.08),
    "kl": (0.2, 0.04), "grad_norm": (0.5, 0.08), "completions/mean_length": (300.0, 20.0),
    "completions/clipped_ratio": (0.1, 0.03), "tools/call_frequency": (0.8, 0.08),
    "tools/failure_frequency": (0.1, 0.03),
}  # fmt: skip


def make_run(steps=200, *, every=1, seed=0, without=(), **changes):
    """A stationary run; ``changes`` map a key, with ``__`` for ``/``, to a function of (values, growth 0 … 1)."""
    rng = np.random.default_rng(seed)
    growth = np.clip((np.arange(steps) - 0.4 * steps) / (0.4 * steps), 0, 1)
    table = {key: mean + sd * rng.normal(size=steps) for key, (mean, sd) in LEVELS.items() if key not in without}
    for name, change in changes.items():
        key = name.replace("__", "/")
        table[key] = np.broadcast_to(change(table.get(key, rng.normal(size=steps)), growth), steps)
    return from_table(table, every)


def from_table(table, every=1):
    run = Run()
    for row in range(len(next(iter(table.values())))):
        run.append_scalars(every * (row + 1), {key: values[row] for key, values in table.items()})
    return run


def only(rule, run):
    (finding,) = rule.check(run).findings
    assert finding.rule == rule.ID
    assert msgspec.json.encode(finding.to_dict())
    assert [row["segment"] for row in finding.evidence] == ["early", "middle", "late"]
    assert finding.certainty
    assert finding.advice
    assert finding.next_check
    return finding


def falls(values, growth):
    return values - 0.3 * growth


@pytest.mark.parametrize("seed", range(10))
def test_stationary_runs_have_no_finding(seed):
    run = make_run(300, seed=seed)
    assert [finding for rule in OVER_SERIES for finding in rule.check(run).findings] == []


def test_what_was_judged_and_found_in_order_is_said():
    run = make_run(300)
    judged = [phrase for rule in OVER_SERIES for phrase in rule.check(run).judged]
    assert "no KL runaway (kl)" in judged
    assert "no collapse or explosion of the entropy (entropy)" in judged
    assert not [phrase for rule in OVER_SERIES for phrase in rule.check(make_run(4)).judged]


@pytest.mark.parametrize("rule", OVER_SERIES)
def test_missing_keys_are_no_finding_and_no_gap(rule):
    for run in (Run(), from_table({"x": np.ones(100)}), from_table({"kl": np.full(100, math.nan)})):
        assert rule.check(run) == RuleResult()


numbers = st.floats(width=64) | st.sampled_from([0.0, 1.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324])
ALL_KEYS = [
    *LEVELS, "loss", "learning_rate", "eval_reward", "eval_loss", "rewards/a/mean", "rewards/b/mean", "rewards/margins",
    "rewards/accuracies", "rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected", "mismatch_kl",
    "rollout_corr/kl", "sampling/sampling_logp_difference/mean", "sampling/importance_sampling_ratio/mean",
    "rollout_corr/rollout_is_eff_sample_size", "clip_ratio/region_mean", "step_time", "throughput", "void_turns",
    "completions/min_length", "completions/max_length",
]  # fmt: skip
columns = st.lists(numbers, min_size=1, max_size=8)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(ALL_KEYS), columns, min_size=1),
    st.lists(st.integers(0, 400), max_size=12),
    st.integers(0, 130),
)
def test_no_rule_raises_or_warns_whatever_is_logged(table, steps, rows):
    run = Run()
    for row in range(rows):
        step = steps[row] if row < len(steps) else row
        run.append_scalars(step, {key: values[row % len(values)] for key, values in table.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rule in OVER_SERIES:
            rule.check(run)


@pytest.mark.parametrize("every", [1, 10, 50])
def test_the_same_rows_give_the_same_findings_at_any_cadence(every):
    changes = {"frac_reward_zero_std": lambda values, growth: values + 0.65 * growth, "reward": falls}
    run = make_run(300, every=every, **changes)
    assert only(zero_signal, run).severity in ("warning", "critical")


# Zero learning signal


def cold_collapse(rows=50, every=10):
    """A look-alike of a public run: no signal behind a good mean reward, every completion at the cap."""
    rng = np.random.default_rng(1)
    return from_table(
        {
            "frac_reward_zero_std": 1 - 0.004 * (rng.random(rows) < 0.3),
            "reward_std": 2e-5 * rng.random(rows),
            "reward": 0.88 + 0.015 * rng.normal(size=rows),
            "grad_norm": 0.002 + 0.001 * rng.random(rows),
            "kl": 0.003 + 0.0003 * rng.normal(size=rows),
            "completions/clipped_ratio": np.ones(rows),
            "completions/mean_length": np.full(rows, 96.0),
        },
        every,
    )


@pytest.mark.parametrize("rows", [5, 20, 50])
def test_no_signal_behind_a_good_reward_is_critical_from_the_first_logs(rows):
    finding = only(zero_signal, cold_collapse(rows))
    assert finding.severity == "critical"
    assert finding.steps[0] == 10
    assert finding.cause == "zero learning signal"
    assert "teach nothing, whatever the mean reward says" in finding.summary
    assert finding.evidence[0]["reward"] == pytest.approx(0.88, abs=0.03)


def test_a_dead_run_is_named():
    rows = 40
    keys = ("reward", "reward_std", "grad_norm")
    run = from_table({key: np.zeros(rows) for key in keys})
    finding = only(dead_run, run)
    assert finding.severity == "critical"
    assert "the run is dead" in finding.summary
    assert zero_signal.check(run).findings == ()
    assert dead_run.check(make_run()).findings == ()
    assert only(dead_run, from_table({"loss": np.full(rows, 2.5)})).severity == "critical"


def test_four_rows_are_too_few():
    assert zero_signal.check(cold_collapse(4)).findings == ()


def test_single_groups_without_signal_seven_times_in_ten_are_no_finding():
    rng = np.random.default_rng(0)
    for _ in range(20):
        run = make_run(150, frac_reward_zero_std=lambda values, growth: 1.0 * (rng.random(values.size) < 0.7))
        assert zero_signal.check(run).findings == ()


def test_equal_rewards_because_the_task_is_solved_are_a_note():
    run = make_run(
        frac_reward_zero_std=lambda values, growth: values + (0.99 - values) * growth,
        reward=lambda values, growth: values + 0.49 * growth,
    )
    finding = only(zero_signal, run)
    assert finding.severity == "note"
    assert "may be solved" in finding.summary


def test_a_share_that_rises_while_the_reward_falls_is_a_warning():
    run = make_run(frac_reward_zero_std=lambda values, growth: values + 0.35 * growth, reward=falls)
    finding = only(zero_signal, run)
    assert finding.severity == "warning"
    assert "not because the task is being solved" in finding.summary
    assert "The reward has fallen meanwhile" in finding.summary


def test_half_of_the_groups_without_signal_is_normal_late_in_a_good_run():
    run = make_run(frac_reward_zero_std=lambda values, growth: values + 0.2 * growth, reward=lambda v, g: v + 0.3 * g)
    assert zero_signal.check(run).findings == ()


# Length at the cap


def test_all_completions_at_the_cap_are_a_warning_with_the_reward_beside():
    finding = only(length_at_cap, cold_collapse())
    assert finding.severity == "warning"
    assert "100% of the completions are cut off" in finding.summary
    assert "The reward has not moved" in finding.summary


def test_a_falling_reward_at_the_cap_is_critical_and_a_rising_one_a_note():
    to_cap = {"completions__clipped_ratio": lambda values, growth: values + (0.98 - values) * growth}
    assert only(length_at_cap, make_run(**to_cap, reward=falls)).severity == "critical"
    assert only(length_at_cap, make_run(**to_cap, reward=lambda v, g: v + 0.3 * g)).severity == "note"


def test_a_rise_to_half_is_found_and_a_stable_quarter_is_not():
    risen = make_run(completions__clipped_ratio=lambda values, growth: values + 0.45 * growth)
    assert "has risen from" in only(length_at_cap, risen).summary
    stable = make_run(completions__clipped_ratio=lambda values, growth: values + 0.2)
    assert length_at_cap.check(stable).findings == ()


# KL


def test_a_runaway_is_critical_and_says_that_the_reward_still_rises():
    run = make_run(kl=lambda v, g: v * np.exp(np.log(20) * g), reward=lambda v, g: v + 0.3 * g)
    finding = only(kl_runaway, run)
    assert finding.severity == "critical"
    assert "The reward has risen meanwhile" in finding.summary
    assert finding.exclusions == ("The reward still rises: it does not show this yet.",)


def test_what_moves_only_once_the_learning_rate_has_warmed_up_is_no_runaway():
    learned = np.clip(np.arange(300) - 80, 0, None) / 60
    kl = 0.5 * (1 - np.exp(-learned)) + 0.001 + 0.01 * np.random.default_rng(0).random(300)
    rate = np.minimum(np.arange(300) / 80, 1.0)
    for rows in range(100, 301, 10):
        assert kl_runaway.check(from_table({"kl": kl[:rows], "learning_rate": rate[:rows]})).findings == ()
    found = [kl_runaway.check(from_table({"kl": kl[:rows]})).findings for rows in range(100, 301, 10)]
    assert any(found)  # without the learning rate it cannot tell


@pytest.mark.parametrize(
    "kl",
    [
        lambda values, growth: values + 3.0,  # high but stable
        lambda values, growth: np.where(np.arange(values.size) < 60, values, 6 * values),  # a step up, long since level
        lambda values, growth: np.where(np.arange(values.size) % 40 == 0, 50 * values, values),  # spikes
        lambda values, growth: np.full(values.size, math.nan),  # beta 0
    ],
)
def test_a_kl_that_is_high_stable_spiky_or_undefined_is_no_runaway(kl):
    assert kl_runaway.check(make_run(kl=kl)).findings == ()


def test_a_large_growth_of_a_tiny_kl_is_a_note():
    run = make_run(kl=lambda v, g: 1e-3 * v * np.exp(np.log(20) * g))
    assert only(kl_runaway, run).severity == "note"


def test_the_time_to_harm_is_said_and_near_harm_is_critical():
    def growing_to(end):
        return make_run(kl=lambda v, g: 0.5 * v * (end / 0.1) ** (np.arange(v.size) / v.size))

    finding = only(kl_runaway, growing_to(0.8))
    assert finding.severity == "warning"
    assert "At this rate it reaches 1 nat in about" in finding.summary
    assert only(kl_runaway, growing_to(1.4)).severity == "critical"


# Entropy


def test_a_fall_alone_is_a_note():
    run = make_run(entropy=lambda v, g: v * (1 - 0.8 * g), reward=lambda v, g: v + 0.3 * g)
    finding = only(entropy_change, run)
    assert finding.severity == "note"
    assert "may be ordinary learning" in finding.summary
    assert finding.cause == ""


def test_a_fall_with_a_second_sign_is_a_warning_and_with_a_fallen_reward_critical():
    falling = {"entropy": lambda v, g: v * (1 - 0.9 * g)}
    warned = only(entropy_change, make_run(**falling, frac_reward_zero_std=lambda v, g: v + 0.4 * g))
    assert warned.severity == "warning"
    assert "more groups with equal rewards" in warned.summary
    assert only(entropy_change, make_run(**falling, reward=falls)).severity == "critical"


def test_an_explosion_is_found_too():
    finding = only(entropy_change, make_run(entropy=lambda v, g: v * (1 + 4 * g), reward=falls))
    assert finding.severity == "critical"
    assert "has risen from" in finding.summary


def test_a_fall_by_a_third_is_no_finding():
    run = make_run(entropy=lambda v, g: v * (1 - 0.33 * g), reward=falls)
    assert entropy_change.check(run).findings == ()


# Gradient


def test_a_lasting_growth_of_the_tail_is_found():
    finding = only(gradient_tail, make_run(300, grad_norm=lambda v, g: v * (1 + 5 * g)))
    assert finding.severity == "warning"
    assert "The reward has not fallen" in finding.exclusions[0]


def test_spikes_are_benign():
    for seed in range(10):
        spiky = np.where(np.random.default_rng(seed).random(300) < 0.03, 100.0, 1.0)
        run = make_run(300, grad_norm=lambda v, g, spiky=spiky: v * spiky)
        assert gradient_tail.check(run).findings == ()


@pytest.mark.parametrize(("factor", "words"), [(0.2, "has fallen from"), (3.0, "has grown from")])
def test_a_change_of_length_counts_when_the_reward_does_not_gain(factor, words):
    changed = {"completions__mean_length": lambda v, g: v * (1 + (factor - 1) * g)}
    note = only(length_change, make_run(**changed))
    assert (note.severity, words in note.summary) == ("note", True)
    warning = only(length_change, make_run(**changed, reward=falls))
    assert (warning.severity, warning.cause) == ("warning", "length collapse")
    assert 100 <= warning.steps[0] <= 130
    assert length_change.check(make_run(**changed, reward=lambda v, g: v + 0.3 * g)).findings == ()


def test_a_length_that_changes_little_or_runs_into_the_limit_is_left_alone():
    for factor in (0.6, 1.8):
        run = make_run(completions__mean_length=lambda v, g, factor=factor: v * (1 + (factor - 1) * g), reward=falls)
        assert "completions keep their length" in length_change.check(run).judged[0]
    to_cap = {
        "completions__clipped_ratio": lambda v, g: v + 0.8 * g,
        "completions__mean_length": lambda v, g: v * (1 + g),
    }
    assert length_change.check(make_run(**to_cap, reward=falls)).findings == ()
    assert length_change.check(make_run(without=("completions/mean_length",))) == RuleResult()


def test_no_gradient_beside_a_signal_is_an_update_blocked():
    run = make_run(grad_norm=lambda v, g: np.where(np.arange(v.size) < 185, v, 0.0))
    assert update_blocked.check(run).findings == ()  # 15 rows
    run = make_run(grad_norm=lambda v, g: np.where(np.arange(v.size) < 175, v, 0.0))
    assert only(update_blocked, run).severity == "warning"
    run = make_run(grad_norm=lambda v, g: np.where(np.arange(v.size) < 160, v, 0.0))
    finding = only(update_blocked, run)
    assert finding.severity == "critical"
    assert finding.steps[0] == pytest.approx(161, abs=5)
    assert "while reward_std is 0." in finding.summary


def test_no_gradient_where_the_spread_of_the_rewards_is_not_logged():
    run = from_table({"reward": np.full(100, 0.5), "grad_norm": np.r_[np.ones(60), np.zeros(40)]})
    finding = only(update_blocked, run)
    assert finding.severity == "warning"
    assert "since step 61: the weights do not move" in finding.summary
    short = from_table({"reward": np.full(100, 0.5), "grad_norm": np.r_[np.ones(75), np.zeros(25)]})
    assert update_blocked.check(short) == RuleResult()
    moving = from_table({"reward": np.full(100, 0.5), "grad_norm": np.ones(100)})
    assert update_blocked.check(moving).judged == ("the weights move (grad_norm)",)


def test_no_gradient_beside_a_loss_is_an_update_blocked_too():
    loss = 2 + 0.1 * np.random.default_rng(0).normal(size=100)
    assert "while loss is 1.99" in only(update_blocked, from_table({"loss": loss, "grad_norm": np.zeros(100)})).summary
    assert update_blocked.check(from_table({"loss": loss, "grad_norm": loss})).judged


def test_no_gradient_without_a_signal_is_another_rule():
    run = make_run(grad_norm=lambda v, g: 0.0 * v, reward_std=lambda v, g: 0.0 * v)
    assert update_blocked.check(run).findings == ()


# Rewards


def two_rewards(true, rows=60, seed=3, onset=20):
    rng = np.random.default_rng(seed)
    rise = np.clip((np.arange(rows) - onset) / 20, 0, 1)
    return from_table(
        {"reward/g": 0.05 + 0.03 * rise + 0.006 * rng.normal(size=rows), "reward/f": true(rise, rng.normal(size=rows))}
    )


def test_a_proxy_that_rises_without_the_true_reward_is_possible_hacking():
    finding = only(reward_hacking, two_rewards(lambda rise, noise: np.maximum(0.001 + 0.0015 * noise, 0), rows=80))
    assert finding.severity == "warning"
    assert finding.summary.startswith("Possible reward hacking: reward/g has risen from 0.0")
    assert "while reward/f has not followed" in finding.summary


@pytest.mark.parametrize(
    "true",
    [
        lambda rise, noise: 0.2 + 0.1 * rise + 0.02 * noise,  # rises too
        lambda rise, noise: 0.98 + 0.004 * noise,  # has no room to rise
        lambda rise, noise: 0.0 * noise,  # is never given
        lambda rise, noise: -0.1 + 0.01 * noise,  # a penalty
    ],
)
def test_a_second_reward_that_rises_or_cannot_is_no_hacking(true):
    assert reward_hacking.check(two_rewards(true)).findings == ()


def test_in_a_short_run_it_is_a_note():
    finding = only(
        reward_hacking, two_rewards(lambda rise, noise: np.maximum(0.001 + 0.0015 * noise, 0), rows=30, onset=5)
    )
    assert finding.severity == "note"
    assert finding.summary.endswith("30 rows are too few to be sure.")


@pytest.mark.parametrize("again", [{}, {"rewards__only__mean": lambda v, g: 0.5 + 0.3 * g}])
def test_a_single_reward_says_nothing_of_hacking_and_that_is_said(again):
    result = reward_hacking.check(make_run(reward=lambda v, g: 0.5 + 0.3 * g, **again))
    assert result.findings == ()
    assert "one training reward is logged and no evaluation" in str(result.cannot_judge[0])


def test_an_evaluation_that_falls_beside_a_rising_reward_is_found():
    run = make_run(reward=lambda v, g: v + 0.3 * g)
    rng = np.random.default_rng(0)
    for number in range(12):
        run.append_scalars(200 + number, {"eval_reward": 0.5 - 0.015 * number + 0.01 * rng.normal()})
    assert "eval_reward has fallen from" in only(reward_hacking, run).summary


# Tools


def test_tool_calls_that_stop_are_found():
    finding = only(tool_use, make_run(tools__call_frequency=lambda v, g: v * (1 - 0.98 * g)))
    assert finding.severity == "critical"
    assert finding.cause == "tool-use collapse"
    rising = make_run(tools__call_frequency=lambda v, g: v * (1 - 0.98 * g), reward=lambda v, g: v + 0.3 * g)
    assert only(tool_use, rising).severity == "warning"


def test_tool_use_that_rises_first_and_then_stops_is_found():
    run = make_run(tools__call_frequency=lambda v, g: v * np.where(g < 0.6, g, np.where(g < 1, 0.1, 0.01)))
    assert only(tool_use, run).severity in ("warning", "critical")


def test_a_tool_that_was_hardly_called_and_a_halved_rate_are_no_collapse():
    assert tool_use.check(make_run(tools__call_frequency=lambda v, g: 0.05 * (1 - g))).findings == ()
    assert tool_use.check(make_run(tools__call_frequency=lambda v, g: v * (1 - 0.5 * g))).findings == ()


def breaks(values, growth):
    return np.where(growth > 0.1, values + 0.75, values)


def test_tools_that_break_while_the_policy_stays_are_an_environment_fault():
    finding = only(tool_failures, make_run(tools__failure_frequency=breaks))
    assert finding.severity == "critical"
    assert finding.cause == "environment fault"
    assert "Policy metrics did not move (entropy, grad_norm, kl, completions/mean_length)" in finding.summary


def test_tools_that_fail_while_the_policy_moves_may_be_its_calls():
    run = make_run(tools__failure_frequency=breaks, entropy=lambda v, g: v * (1 + g))
    finding = only(tool_failures, run)
    assert finding.cause == "tool-use collapse"
    assert "Policy metrics moved too (entropy)" in finding.summary


# Restarts


def test_a_step_that_is_repeated_after_a_resume_supersedes_what_stood_before():
    run = make_run(200)
    for step in range(100, 301):  # the second half again, and now with a runaway
        run.append_scalars(step, {"kl": 0.2 * math.exp(max(step - 150, 0) / 40)})
    assert only(kl_runaway, run).severity == "critical"
