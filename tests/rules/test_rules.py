"""The rules on runs that are built block by block from real sketches."""

import math
from dataclasses import replace

import numpy as np
import pytest

from foreshock.diagnosis import diagnose_run
from foreshock.rules import monitor_errors, no_comparator, non_finite, tail_course, tail_growth
from foreshock.run import Block, Run
from foreshock.sketch import LogRatioSketch


def make_run(blocks=30, *, post=lambda block: 1.0, text=lambda block: 1.0, tokens=(6000, 6000), seed=0, counters=None):
    """A run of ten-step blocks whose |r| is heavy-tailed with a scale per block and slice."""
    rng = np.random.default_rng(seed)
    run = Run()
    for index in range(blocks):
        sketch = LogRatioSketch()
        for slice_id, (scale, count) in enumerate(zip((text, post), tokens, strict=True)):
            log_ratio = 0.2 * scale(index) * rng.standard_t(3, size=count) * math.exp(rng.normal(0, 0.05))
            sketch.update(log_ratio.astype(np.float32), np.full(count, slice_id))
        found = counters(index) if counters else {}
        run.blocks.append(Block(index, 10 * index + 1, 10 * index + 10, {"policy/ref": sketch}, counters=found))
    for step in range(1, 10 * blocks + 1):
        run.append_scalars(step, {key: 0.5 + rng.normal(0, 0.05) for key in ("loss", "reward", "entropy", "kl")})
    return run


def growing(block):
    return 1.0 if block < 8 else 1.05 ** (block - 8)


def test_growth_after_tool_results_alone_is_found_and_said_in_plain_words():
    result = tail_growth.check(make_run(post=growing))
    (finding,) = result.findings
    assert finding.severity == "critical"
    assert finding.slice == "post_tool"
    assert 90 < finding.steps[0] < 300
    assert "After tool results, p99 of |log-ratio policy/ref| has grown ×" in finding.summary
    assert "loss, reward, entropy and mean KL: no change beyond 15% since step 42" in finding.summary
    assert finding.cause == "tool-conditioned support mismatch"
    assert any("not the optimiser" in sentence for sentence in finding.exclusions)
    assert any("nothing had moved of loss, reward, entropy and mean KL" in sentence for sentence in finding.exclusions)
    table = {(row["segment"], row["slice"]): row for row in finding.evidence}
    assert table["late", "post_tool"]["p99"] > 1.5 * table["early", "post_tool"]["p99"]


@pytest.mark.parametrize("seed", range(8))
def test_stationary_runs_stay_quiet(seed):
    diagnosis = diagnose_run(make_run(seed=seed))
    assert diagnosis.verdict == "healthy"
    assert diagnosis.findings == ()
    assert "no growth of the post-tool tail beyond the text-only one (policy/ref)" in diagnosis.judged


def test_a_drift_that_both_slices_share_is_not_post_tool_growth():
    found = [tail_growth.check(make_run(post=growing, text=growing, seed=seed)).findings for seed in range(10)]
    assert {finding.severity for findings in found for finding in findings} == {"note"}
    assert all("in text-only contexts alike" in findings[0].summary for findings in found)


def test_a_tail_that_is_far_out_from_the_start_is_noted_and_one_that_both_slices_share_is_not():
    far = tail_growth.check(make_run(post=lambda block: 30.0, text=lambda block: 3.0)).findings
    assert [(finding.severity, finding.slice) for finding in far] == [("note", "post_tool")]
    assert "That it still grows is not certain" in far[0].summary
    assert not tail_growth.check(make_run(post=lambda block: 30.0, text=lambda block: 30.0)).findings


def test_growth_in_text_only_alone_is_noted_and_is_not_post_tool_growth():
    result = tail_growth.check(make_run(text=growing))
    (note,) = result.findings
    assert (note.severity, note.slice) == ("note", "text_only")
    assert note.summary.startswith("The tail grows in text-only contexts and not after tool results")
    assert result.judged
    assert not tail_growth.check(make_run(text=lambda block: min(growing(block), 1.5))).findings


def test_too_few_blocks_cannot_be_judged_and_are_not_healthy():
    diagnosis = diagnose_run(make_run(blocks=6, post=growing))
    assert diagnosis.verdict == "cannot_judge"
    assert "3 blocks after the first 30 steps can be judged, 13 are needed." in str(diagnosis.cannot_judge[0])


@pytest.mark.parametrize(
    ("slope", "severity"), [(0.0, None), (0.03, "note"), (0.09, "warning")], ids=["stationary", "some", "much"]
)
def test_without_text_only_tokens_the_level_alone_is_judged_and_said_to_be_weak(slope, severity):
    run = make_run(tokens=(100, 6000), post=lambda block: math.exp(slope * max(0, block - 8)), blocks=34)
    result = tail_growth.check(run)
    assert "The post-tool level alone is judged instead" in str(result.cannot_judge[0])
    assert "text_only holds 100 tokens" in str(result.cannot_judge[0])
    assert [finding.severity for finding in result.findings] == ([severity] if severity else [])
    assert all("this may be ordinary learning" in finding.summary for finding in result.findings)
    assert diagnose_run(run).verdict == (severity if severity == "warning" else "cannot_judge")


def test_text_only_tokens_that_cease_leave_nothing_to_compare_with():
    run, later = make_run(30), make_run(30, tokens=(100, 6000))
    run.blocks[22:] = later.blocks[22:]
    result = tail_growth.check(run)
    assert not result.findings
    assert "None of the last 8 blocks can be compared with text-only tokens." in str(result.cannot_judge[0])
    some_left = [*make_run(24).blocks, *later.blocks[24:]]
    assert not tail_growth.check(Run(blocks=some_left)).cannot_judge


def test_an_aggregate_that_moved_is_named_with_its_step():
    run = make_run(post=growing)
    for step in range(230, 301):
        run.series["reward"].values[step - 1] += 0.4
    (finding,) = tail_growth.check(run).findings
    assert "loss, reward, entropy and mean KL: no change" in finding.summary
    assert "Moved later: reward since step " in finding.summary


def test_a_mixture_is_found_under_noise_that_all_tokens_of_a_step_share():
    """The level alone would not tell it from the noise; how far the tail stands out from the other tokens does."""
    run = make_run(blocks=40, post=lambda block: math.exp(0.35 * math.sin(0.7 * block)))
    assert not tail_growth.check(run).findings
    rng = np.random.default_rng(5)
    for index, block in enumerate(run.blocks):
        wave, share = math.exp(0.35 * math.sin(0.7 * index)), 0.04 * min(max(0, index - 15) / 10, 1)
        stretched = np.where(rng.random(6000) < share, 6.0, 1.0) * 0.2 * wave * rng.standard_t(3, size=6000)
        sketch = LogRatioSketch()
        sketch.update(0.2 * rng.standard_t(3, size=6000), np.zeros(6000, dtype=int))
        sketch.update(stretched, np.ones(6000, dtype=int))
        run.blocks[index] = Block(block.index, block.first_step, block.last_step, {"policy/ref": sketch})
    (finding,) = tail_growth.check(run).findings
    assert finding.severity in ("warning", "critical")
    course = tail_course.tail_course(run, "policy/ref")
    assert course.shape.errors > course.level.errors


def test_a_fall_of_the_other_tokens_is_no_growth_of_the_tail():
    run = make_run(blocks=34)
    rng = np.random.default_rng(6)
    for index, block in enumerate(run.blocks):
        tokens = rng.standard_t(3, size=6000)
        fallen = np.where(np.abs(tokens) < 3, tokens * math.exp(-0.05 * max(0, index - 10)), tokens)
        sketch = LogRatioSketch()
        sketch.update(0.2 * np.concatenate([rng.standard_t(3, size=6000), fallen]), np.repeat([0, 1], 6000))
        run.blocks[index] = Block(block.index, block.first_step, block.last_step, {"policy/ref": sketch})
    assert not tail_growth.check(run).findings
    assert tail_course.tail_course(run, "policy/ref").shape.size > math.log(tail_course.MINIMUM_GROWTH)


def test_a_second_pass_reads_only_new_blocks(monkeypatch):
    run = make_run(post=growing)
    first = tail_growth.check(run)
    monkeypatch.setattr(tail_course, "_read", lambda *_: pytest.fail("an old block was read again"))
    assert tail_growth.check(run) == first


def test_a_live_run_is_judged_as_it_would_be_offline():
    whole = make_run(post=growing)
    live = Run(series=whole.series)
    for block in whole.blocks:
        live.blocks.append(block)
        live_result = tail_growth.check(live)
    assert live_result == tail_growth.check(Run(series=whole.series, blocks=whole.blocks))


def test_blocks_that_were_replaced_are_judged_anew():
    run = make_run(post=growing)
    assert tail_growth.check(run).findings
    run.blocks[:] = make_run().blocks
    assert not tail_growth.check(run).findings
    shorter = make_run(blocks=27, post=growing).blocks
    run.blocks[:] = shorter
    assert tail_growth.check(run) == tail_growth.check(Run(series=run.series, blocks=shorter))


def test_growth_that_is_far_from_harm_is_a_warning_however_certain():
    far, near = (make_run(post=lambda block, size=size: size * growing(block)) for size in (0.02, 1.0))
    (finding,), (harmful,) = tail_growth.check(far).findings, tail_growth.check(near).findings
    assert (finding.severity, harmful.severity) == ("warning", "critical")
    assert "it reaches 2 nats" in finding.summary
    assert "It is beyond 2 nats" in harmful.summary


def test_the_table_of_effects_holds_early_middle_and_late_blocks():
    (finding,) = tail_growth.check(make_run(blocks=48, post=growing)).findings
    rows = [row for row in finding.evidence if row["slice"] == "post_tool"]
    assert [row["segment"] for row in rows] == ["early", "middle", "late"]
    assert rows[0]["beyond early p99"] == pytest.approx(0.01, abs=0.002)
    assert rows[2]["beyond early p99"] > rows[1]["beyond early p99"] > 0.01
    assert rows[2]["tail moved by"] > rows[1]["tail moved by"] > rows[0]["tail moved by"] == 0


@pytest.mark.parametrize(("pair", "cause"), [("policy/old", "support"), ("old/rollout", "engine")])
def test_growth_between_trainer_and_sampler_is_the_engines(pair, cause):
    run = make_run(post=growing)
    run.blocks[:] = [replace(block, sketches={pair: block.sketches["policy/ref"]}) for block in run.blocks]
    (finding,) = tail_growth.check(run).findings
    assert cause in finding.cause
    assert ("reference" in finding.advice) == (cause == "support")


def test_a_run_without_tool_results_says_so():
    counters = {"response_tokens": (600.0,) * 10, "post_tool_tokens": (0.0,) * 10}
    (gap,) = tail_growth.check(make_run(tokens=(6000, 0), counters=lambda _: counters)).cannot_judge
    assert gap.reason.startswith("no response token stands after a tool result")
    (gap,) = tail_growth.check(make_run(tokens=(6000, 0))).cannot_judge  # a record that does not count them
    assert "post_tool holds 0 tokens" in gap.remedy


def test_a_tail_that_ends_with_the_tool_results_is_not_judged_on():
    run = make_run(blocks=34)
    run.blocks[25:] = [replace(block, sketches={"policy/ref": LogRatioSketch()}) for block in run.blocks[25:]]
    result = tail_growth.check(run)
    assert not result.judged
    assert "None of the last 8 blocks can be compared" in str(result.cannot_judge[0])
    assert "judged instead" not in str(result.cannot_judge[0])


def test_no_comparator_says_how_to_get_one():
    run = Run(blocks=[Block(0, 1, 10, {})])
    (gap,) = no_comparator.check(run).cannot_judge
    assert "Set beta > 0, train with a PEFT adapter, or pass ref_model=" in str(gap)
    assert diagnose_run(run).verdict == "cannot_judge"


@pytest.mark.parametrize("values", [[], [math.nan] * 50, [1.0]])
def test_silence_is_never_health(values):
    run = Run()
    for step, value in enumerate(values):
        run.append_scalars(step, {"unknown/metric": value})
    assert diagnose_run(run).verdict == "cannot_judge"


@pytest.mark.parametrize(
    ("rows", "key", "words"),
    [
        (0, "", "this run holds no logged value at all"),
        (1, "reward", "No key has more than 1 finite values; most rules need 40."),
        (50, "my/metric", "Of loss, reward, entropy, kl, grad_norm it logs none."),
        (50, "reward", "scalars only, so the tails of its log-ratios cannot be judged."),
    ],
)
def test_what_a_log_holds_too_little_of_is_said(rows, key, words):
    run = Run()
    for step in range(rows):
        run.append_scalars(step, {key: 0.5})
    (gap,) = no_comparator.check(run).cannot_judge
    assert words in gap.reason


def test_a_log_without_any_finite_number_cannot_be_judged():
    run = Run()
    for step in range(50):
        run.append_scalars(step, {"loss": math.nan, "reward": math.nan, "kl": math.inf, "epoch": step / 50})
    diagnosis = diagnose_run(run)
    assert diagnosis.verdict == "cannot_judge"
    assert "no value that this run logs is finite (reward and loss among them)" in str(diagnosis.cannot_judge[0])
    run.append_scalars(50, {"loss": math.nan, "learning_rate": 1e-6})
    assert diagnose_run(run).verdict == "critical"
    assert "from the first step" in diagnose_run(run).findings[0].advice


def test_a_supervised_run_that_learns_is_healthy_and_a_short_one_cannot_be_judged():
    rng = np.random.default_rng(0)
    run = Run()
    for step in range(1, 301):
        learned = math.exp(-step / 60)
        run.append_scalars(step, {"loss": 1.2 + learned + 0.05 * rng.normal(), "grad_norm": 0.6 + 0.1 * rng.normal()})
        if step == 10:
            assert diagnose_run(run).verdict == "cannot_judge"
    diagnosis = diagnose_run(run)
    assert diagnosis.verdict == "healthy"
    assert "the loss keeps what it gained (loss)" in diagnosis.judged
    run.append_scalars(301, {"kl": 0.1})  # a policy that is held to a reference: its tails are a question again
    assert diagnose_run(run).verdict == "cannot_judge"


def test_scalars_of_a_healthy_reinforcement_run_say_what_was_judged_and_what_was_not():
    rng, run = np.random.default_rng(0), Run()
    for step in range(1, 501):
        levels = {"reward": 0.5, "loss": 0.0, "entropy": 1.0, "grad_norm": 0.4}
        run.append_scalars(step, {key: level + 0.03 * rng.normal() for key, level in levels.items()})
    diagnosis = diagnose_run(run)
    assert diagnosis.verdict == "cannot_judge"
    assert len(diagnosis.judged) >= 4
    assert [gap.rule for gap in diagnosis.cannot_judge] == ["reward-without-progress", "no-comparator"]


def test_the_first_tensor_with_a_non_finite_value_is_named():
    def counters(index):
        ref = (0.0,) * 6 + (3.0, 9.0, 9.0, 9.0) if index == 4 else (0.0,) * 10
        return {"nonfinite/ref": ref, "nonfinite/policy": (0.0,) * 7 + (5.0, 5.0, 5.0) if index == 4 else (0.0,) * 10}

    run = make_run(blocks=6, counters=counters)
    run.append_scalars(61, {"loss": math.nan})
    (finding,) = non_finite.check(run).findings
    assert finding.summary.startswith("ref log-probabilities had the first non-finite value, at step 47.")
    assert finding.severity == "critical"
    assert [row["what"] for row in finding.evidence] == ["ref log-probabilities", "policy log-probabilities", "loss"]


def test_an_alarm_stays_when_the_tail_recedes_and_says_so():
    diagnosis = diagnose_run(make_run(34, post=lambda block: growing(min(block, 22)) if block < 25 else 1.0))
    assert diagnosis.verdict == "warning"
    assert "It has receded since its alarm." in diagnosis.findings[0].summary


def test_certain_but_small_growth_is_a_note():
    diagnosis = diagnose_run(make_run(post=lambda block: 1.0 if block < 8 else 1.12, tokens=(60_000, 60_000)))
    assert {finding.severity for finding in diagnosis.findings} <= {"note"}
    assert diagnosis.verdict == "healthy"


def test_a_gradient_that_is_never_finite_again_is_critical():
    run = make_run()
    run.append_scalars(300, {"grad_norm": 1.0})
    run.append_scalars(301, {"grad_norm": math.nan})
    assert diagnose_run(run).verdict == "critical"


@pytest.mark.parametrize(("missing", "severity"), [(3.0, "note"), (40.0, "warning")])
def test_tokens_that_the_sampler_could_not_score_are_noted_unless_they_are_many(missing, severity):
    run = make_run(counters=lambda _: {"nonfinite/rollout": (missing,) * 10, "response_tokens": (1000.0,) * 10})
    (finding,) = non_finite.check(run).findings
    assert finding.severity == severity


@pytest.mark.parametrize(
    ("loss", "severity", "words"),
    [
        ([math.nan, 1.0, 1.0], "note", "A single update that the scaler skips is harmless."),
        ([math.nan, 1.0, math.nan, 1.0], "critical", ""),
        ([math.nan, math.nan], "critical", "No later value of loss is finite: the weights are probably lost."),
    ],
)
def test_what_came_after_tells_whether_the_weights_were_hit(loss, severity, words):
    run = Run()
    for step, value in enumerate([1.0] * 50 + loss, start=1):
        run.append_scalars(step, {"loss": value, "reward": 0.5})
    (finding,) = non_finite.check(run).findings
    assert finding.severity == severity
    assert "last checkpoint before this step" in finding.advice
    assert finding.summary == f"loss had the first non-finite value, at step 51. {words}".strip()


def test_weights_that_were_not_hit_are_said_to_be_sound():
    run = make_run(counters=lambda index: {"nonfinite/ref": (2.0,) * 10} if index == 4 else {})
    (finding,) = non_finite.check(run).findings
    assert finding.summary.endswith("All later values of loss are finite: the weights were not spoilt.")


def test_a_single_skipped_gradient_and_an_undefined_kl_are_benign():
    run = make_run()
    run.append_scalars(301, {"grad_norm": math.nan})
    run.append_scalars(302, {"grad_norm": 1.0, "kl": math.nan})
    (finding,) = non_finite.check(run).findings
    assert finding.severity == "note"
    assert diagnose_run(run).verdict == "healthy"


def test_monitor_errors_are_a_note():
    run = make_run()
    run.notices["monitor-errors"] = "3 error(s) inside Foreshock"
    (finding,) = monitor_errors.check(run).findings
    assert (finding.severity, finding.summary) == ("note", "3 error(s) inside Foreshock")
    assert diagnose_run(run).verdict == "cannot_judge"


def test_errors_on_other_workers_are_seen_in_the_blocks():
    run = make_run(counters=lambda index: {"errors": (2.0,) + (0.0,) * 9 if index == 3 else (0.0,) * 10})
    (finding,) = monitor_errors.check(run).findings
    assert finding.summary.startswith("2 error(s)")
    assert diagnose_run(run).verdict == "cannot_judge"
