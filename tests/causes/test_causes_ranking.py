"""Simulated failures through all rules: the right cause is first, what looks like it is second or excluded."""

import math
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshock.causes import checks, weigh_causes
from foreshock.causes.table import TABLE
from foreshock.diagnosis import diagnose_run
from foreshock.rules import BUILT_IN
from foreshock.rules import cause_names as causes
from foreshock.rules.finding import Finding
from foreshock.run import Block, Run
from foreshock.sketch import LogRatioSketch

LEVELS = {
    "loss": (0.0, 0.02), "reward": (0.5, 0.05), "reward_std": (0.3, 0.04), "frac_reward_zero_std": (0.3, 0.08),
    "entropy": (1.0, 0.08), "kl": (0.2, 0.03), "grad_norm": (0.5, 0.06), "completions/mean_length": (300.0, 20.0),
    "completions/clipped_ratio": (0.1, 0.03), "tools/call_frequency": (0.8, 0.08),
    "tools/failure_frequency": (0.1, 0.03), "sampling/sampling_logp_difference/mean": (0.01, 0.001),
}  # fmt: skip


def make_run(*, text=1.0, post=1.0, blocks=30, tokens=4000, without=(), rollout=None, seed=0, **changes):
    """A run whose tails grow to ``text`` and ``post`` times their size, and whose series change as they are told.

    ``changes`` map a key, with ``__`` for ``/``, to a function of (values, growth 0 … 1). ``rollout``: log-ratios of
    the trainer over the sampler, from a generator and a slice id.
    """
    rng = np.random.default_rng(seed)
    run = Run()
    for index in range(blocks):
        sketch, share = LogRatioSketch(), min(max(index - 9, 0) / 12, 1)
        for slice_id, factor in enumerate((text, post)):
            values = 0.2 * factor**share * rng.standard_t(3, tokens) * math.exp(rng.normal(0, 0.02))
            sketch.update(values.astype(np.float32), np.full(tokens, slice_id))
        sketches = {"policy/ref": sketch}
        if rollout:
            sketches["old/rollout"] = LogRatioSketch()
            for slice_id in (0, 1):
                sketches["old/rollout"].update(rollout(rng, slice_id), np.full(tokens, slice_id))
        run.blocks.append(Block(index, 10 * index + 1, 10 * index + 10, sketches))
    steps = 10 * blocks
    growth = np.clip((np.arange(steps) - 0.4 * steps) / (0.3 * steps), 0, 1)
    table = {key: mean + sd * rng.normal(size=steps) for key, (mean, sd) in LEVELS.items() if key not in without}
    for name, change in changes.items():
        key = name.replace("__", "/")
        table[key] = np.broadcast_to(change(table.get(key, rng.normal(size=steps)), growth), steps)
    for step in range(steps):
        run.append_scalars(step + 1, {key: values[step] for key, values in table.items()})
    return run


def times(factor):
    return lambda values, growth: values * factor**growth


def plus(amount):
    return lambda values, growth: values + amount * growth


def jumps(factor):
    return lambda values, growth: np.where(growth > 0, values * factor, values)


def is_zero(values, growth):
    return np.zeros(growth.size)


FAILURES = {
    causes.SUPPORT_MISMATCH: {"post": 2.2},
    causes.OPTIMISER: {"text": 2.0, "post": 2.0, "grad_norm": times(8), "kl": times(8), "reward": plus(-0.3)},
    causes.ENTROPY_COLLAPSE: {"entropy": times(0.1), "frac_reward_zero_std": plus(0.4), "reward": plus(-0.1)},
    causes.REWARD_HACKING: {
        "reward": plus(0.4),
        "rewards__task__mean": lambda values, growth: 0.2 + 0.02 * values,
        "completions__mean_length": times(1.8),
    },
    causes.ZERO_SIGNAL: {
        "frac_reward_zero_std": lambda values, growth: np.minimum(values + growth, 1.0) * (1 - growth) + growth,
        "reward_std": times(0.01),
        "grad_norm": times(0.05),
        "reward": plus(-0.2),
    },
    causes.LENGTH_COLLAPSE: {
        "completions__clipped_ratio": lambda values, growth: np.minimum(values + 0.85 * growth, 1.0),
        "completions__mean_length": times(3),
        "reward": plus(-0.3),
    },
    causes.TOOL_USE_COLLAPSE: {
        "tools__call_frequency": times(0.02),
        "completions__mean_length": times(0.4),
        "reward": plus(-0.3),
    },
    causes.ENVIRONMENT: {"tools__failure_frequency": plus(0.8), "reward": plus(-0.4)},
    causes.NUMERICS: {"loss": lambda values, growth: np.where(growth >= 1, math.nan, values)},
}


@pytest.mark.parametrize("name", FAILURES)
def test_the_right_cause_is_first(name):
    diagnosis = diagnose_run(make_run(**FAILURES[name]))
    first = diagnosis.causes[0]
    assert first.name == name, [(str(cause), cause.score, cause.evidence_for) for cause in diagnosis.causes]
    assert first.findings
    assert first.separating_check
    assert first.rival in causes.ALL
    assert first.rival != name
    assert all(cause.evidence_for for cause in diagnosis.causes)


def tool_turns_tokenised_again(rng, slice_id):
    values = 0.02 * rng.normal(size=4000)
    values[: 240 * slice_id] = -4.0
    return values.astype(np.float32)


def renormalised_over_top_p(rng, slice_id):
    return (0.02 * rng.normal(size=4000) - 0.1).astype(np.float32)


DIFFERENCE = "sampling__sampling_logp_difference__mean"
ENGINE = {
    causes.STALE_WEIGHTS: {DIFFERENCE: jumps(12), "reward": plus(-0.2)},
    causes.ENGINE_DRIFT: {DIFFERENCE: lambda values, growth: values * 6 ** np.linspace(0, 1, growth.size)},
    causes.TRUNCATED_SUPPORT: {"rollout": renormalised_over_top_p},
    causes.RETOKENISATION: {"rollout": tool_turns_tokenised_again},
}


@pytest.mark.parametrize("kind", ENGINE)
def test_the_kind_of_an_engine_mismatch_is_told_and_has_its_own_check(kind):
    diagnosis = diagnose_run(make_run(**ENGINE[kind]))
    first = diagnosis.causes[0]
    assert (first.name, first.kind) == (causes.ENGINE_MISMATCH, kind)
    assert str(first) == f"engine mismatch ({kind})"
    assert first.separating_check == checks.KINDS[kind]
    assert first.evidence_against == ()


def test_a_validator_that_dies_is_the_environment():
    diagnosis = diagnose_run(make_run(reward=jumps(0.15)))
    first = diagnosis.causes[0]
    assert (first.name, first.findings) == (causes.ENVIRONMENT, ("environment-fault",))
    assert first.rival


def test_a_dead_run_is_the_environment_and_no_lack_of_signal():
    dead = dict.fromkeys(("reward", "reward_std", "grad_norm"), is_zero)
    diagnosis = diagnose_run(make_run(**dead, frac_reward_zero_std=lambda values, growth: np.ones(growth.size)))
    assert [cause.name for cause in diagnosis.causes] == [causes.ENVIRONMENT]
    assert diagnosis.causes[0].findings == ("dead-run",)


numbers = st.floats(width=64) | st.sampled_from([0.0, 1.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324])


@given(st.dictionaries(st.sampled_from(list(LEVELS)), st.lists(numbers, min_size=1, max_size=8)), st.integers(0, 90))
def test_no_sign_raises_or_warns_whatever_is_logged(table, rows):
    run = Run()
    for row in range(rows):
        run.append_scalars(row, {key: values[row % len(values)] for key, values in table.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranked, _ = weigh_causes(run, [Finding(name, "warning", "X.", (1, 2), cause=name) for name in causes.ALL])
    assert {cause.name for cause in ranked} == set(causes.ALL)


def test_a_support_mismatch_is_told_from_the_optimiser_and_has_an_engine_as_its_rival():
    diagnosis = diagnose_run(make_run(post=2.2, without=("sampling/sampling_logp_difference/mean",)))
    assert [cause.name for cause in diagnosis.causes] == [causes.SUPPORT_MISMATCH, causes.ENGINE_MISMATCH]
    first, excluded = diagnosis.causes[0], {cause.name: cause for cause in diagnosis.excluded}
    assert "learning rate 0" in first.separating_check
    assert first.rival == causes.ENGINE_MISMATCH
    against = " ".join(excluded[causes.OPTIMISER].evidence_against)
    assert "The text-only tail is flat (×1.0" in against
    assert "not the optimiser, which would move both slices." in against
    assert "grad_norm is flat (0.5" in against
    assert causes.ENTROPY_COLLAPSE in excluded


def test_a_flat_difference_of_sampler_and_trainer_speaks_against_the_engine():
    diagnosis = diagnose_run(make_run(post=2.2))
    assert [cause.name for cause in diagnosis.causes] == [causes.SUPPORT_MISMATCH]
    assert causes.ENGINE_MISMATCH in {cause.name for cause in diagnosis.excluded}


def test_a_trainer_that_samples_itself_has_no_engine_to_differ():
    run = make_run(post=2.2, without=("sampling/sampling_logp_difference/mean", "grad_norm"))
    assert causes.ENGINE_MISMATCH in {cause.name for cause in diagnose_run(run).causes}
    run.identity = {"config": {"use_vllm": False}}
    diagnosis = diagnose_run(run)
    (engine,) = (cause for cause in diagnosis.excluded if cause.name == causes.ENGINE_MISMATCH)
    assert "The trainer samples itself" in engine.evidence_against[0]
    assert [(cause.name, cause.rival != engine.name) for cause in diagnosis.causes] == [(causes.SUPPORT_MISMATCH, True)]
    rollouts = make_run(post=2.2, rollout=renormalised_over_top_p, without=("sampling/sampling_logp_difference/mean",))
    rollouts.identity = run.identity
    (engine,) = (cause for cause in diagnose_run(rollouts).causes if cause.name == causes.ENGINE_MISMATCH)
    assert engine.evidence_against == ()


def test_the_hidden_failure_has_its_name_in_finding_and_document():
    diagnosis = diagnose_run(make_run(post=2.2))
    assert diagnosis.findings[0].name == causes.HIDDEN
    document = diagnosis.to_dict()
    assert document["findings"][0]["name"] == "hidden tail growth"
    assert "No aggregate had moved" in " ".join(document["causes"][0]["evidence_for"])


def test_a_failure_that_an_aggregate_shows_is_not_called_hidden():
    falls = {"reward": lambda values, growth: values - 0.4 * (np.arange(values.size) >= 90)}
    diagnosis = diagnose_run(make_run(post=2.2, **falls))
    assert diagnosis.findings[0].rule == "post-tool-tail-growth"
    assert diagnosis.findings[0].name == ""


def test_an_optimiser_that_moves_both_slices_has_both_as_evidence():
    first = diagnose_run(make_run(**FAILURES[causes.OPTIMISER])).causes[0]
    assert {"gradient-instability", "kl-runaway"} <= set(first.findings)
    assert any("text-only tail has grown" in sentence for sentence in first.evidence_for)


def test_tools_that_fail_while_the_policy_moves_leave_the_environment_second():
    moved = {"entropy": times(0.7), "completions__mean_length": times(2.5)}
    diagnosis = diagnose_run(make_run(tools__failure_frequency=plus(0.8), tools__call_frequency=times(0.02), **moved))
    assert [cause.name for cause in diagnosis.causes[:2]] == [causes.TOOL_USE_COLLAPSE, causes.ENVIRONMENT]
    assert "Replay ten calls" in diagnosis.causes[0].separating_check


@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_run_has_no_causes(seed):
    diagnosis = diagnose_run(make_run(seed=seed))
    assert diagnosis.causes == ()
    assert diagnosis.excluded == ()


def test_a_note_is_no_cause():
    note = Finding("any", "note", "Something small.", (1, 2), cause=causes.OPTIMISER)
    assert weigh_causes(Run(), [note]) == ((), ())
    (cause,), _ = weigh_causes(Run(), [replace(note, severity="warning")])
    assert (cause.name, cause.score) == (causes.OPTIMISER, 2)
    assert cause.evidence_for == ("any: Something small.",)


def test_a_cause_that_only_a_users_rule_names_is_listed_with_the_others():
    finding = Finding("disk-full", "warning", "The disk is full. So it is.", (1, 2), cause="a full disk")
    (cause,), excluded = weigh_causes(Run(), [finding])
    assert (cause.name, cause.evidence_for, cause.rival) == ("a full disk", ("disk-full: The disk is full.",), "")
    assert excluded == ()


def test_the_more_severe_of_two_equal_causes_is_first():
    findings = [
        Finding("a", "warning", "A.", (1, 2), cause=causes.OPTIMISER),
        Finding("b", "critical", "B.", (1, 2), cause=causes.NUMERICS),
    ]
    ranked, _ = weigh_causes(Run(), findings)
    assert [cause.name for cause in ranked] == [causes.NUMERICS, causes.OPTIMISER]
    assert [cause.rival for cause in ranked] == [causes.OPTIMISER, causes.NUMERICS]
    assert ranked[0].separating_check == ranked[1].separating_check


def test_the_tables_know_every_cause_and_only_rules_that_exist():
    built_in = {rule.ID for rule in BUILT_IN}
    documented = (Path(__file__).parents[2] / "docs" / "causes.md").read_text()
    assert re.findall(r"^\| ([a-z- ]+) \|", documented, re.MULTILINE) == ["cause", *causes.ALL]
    assert all(kind in documented for kind in causes.ENGINE_KINDS)
    assert tuple(TABLE) == causes.ALL
    assert set(checks.ALONE) == set(causes.ALL)
    assert all(pair <= set(causes.ALL) and len(pair) == 2 for pair in checks.PAIRS)
    assert set(checks.KINDS) == set(causes.ENGINE_KINDS)
    for signs in TABLE.values():
        assert set(signs.fits) <= built_in
        assert set(signs.rivals) <= set(causes.ALL)
