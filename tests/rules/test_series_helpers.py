"""What the rules over series share: reading order, windows, directions and tables."""

import math

import numpy as np
import pytest

from foreshock.diagnosis import diagnose_run
from foreshock.rules.series import course, direction, even_rows, held_since, last_rows, lasts, latest, rows_of
from foreshock.rules.statements import segment_rows, time_sentence
from foreshock.rules.tool_use import highest_stretch
from foreshock.run import Run


def logged(values, key="x", every=1, first=1):
    run = Run()
    for row, value in enumerate(values):
        run.append_scalars(first + every * row, {key: value})
    return run


def test_a_restart_supersedes_later_steps_and_values_that_are_not_finite_are_left_out():
    run = Run()
    for step, value in ((1, 1.0), (2, 2.0), (3, 3.0), (2, 20.0), (3, math.nan), (4, math.inf), (5, 50.0)):
        run.append_scalars(step, {"x": value})
    steps, values = rows_of(run, "x")
    assert steps.tolist() == [1, 2, 5]
    assert values.tolist() == [1.0, 20.0, 50.0]


def test_a_course_needs_forty_rows_after_the_warm_up_and_twenty_without():
    assert course(logged(range(69)), "x") is None
    settled = course(logged(range(70)), "x")
    assert settled.steps[0] == 31
    assert course(logged(range(19)), "x", warm_up=False) is None
    assert course(logged(range(20)), "x", warm_up=False).direction == "up"
    assert course(Run(), "x") is None


@pytest.mark.parametrize(("risen_at", "rows", "found"), [(30, 120, True), (105, 120, False), (20, 59, False)])
def test_a_trend_lasts_when_it_was_there_twenty_rows_ago_as_well(risen_at, rows, found):
    judged = course(logged([float(row >= risen_at) for row in range(rows)]), "x", warm_up=False)
    assert judged.gain > 0
    assert lasts(judged, lambda each: each.gain > 0) is found


def test_the_baseline_begins_once_the_learning_rate_has_warmed_up():
    run = logged(range(200))
    for step in range(1, 201):
        run.append_scalars(step, {"learning_rate": min(step / 100, 1.0)})
    assert course(run, "x").steps[0] == 90 + 30 + 1


@pytest.mark.parametrize(("rows", "found"), [(19, 0), (20, 20), (50, 20)])
def test_the_latest_rows_cover_twenty_steps(rows, found):
    assert latest(logged(range(rows)), "x")[0].size == found


def test_the_latest_rows_of_a_coarse_log_are_five_and_those_of_a_key_that_ended_are_none():
    run = logged(range(8), every=50)
    steps, values = latest(run, "x")
    assert values.tolist() == [3, 4, 5, 6, 7]
    assert last_rows(run, steps, values, over=300)[0].size == 0
    run.append_scalars(10_000, {"y": 1.0})
    assert latest(run, "x")[0].size == 0


def test_a_state_is_dated_to_the_stretch_that_reaches_the_end_and_forgives_single_rows():
    state = np.array([1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1], dtype=bool)
    assert held_since(np.arange(14), state) == 3
    assert held_since(np.arange(3), np.array([True, True, False])) == 2


def test_a_move_is_judged_since_the_warm_up_first_and_else_since_the_first_row():
    noise = 0.02 * np.random.default_rng(0).normal(size=200)
    rise = np.minimum(np.arange(200) / 25, 1.0)
    fall = np.where(np.arange(200) > 120, 0.5, 0.0)
    assert direction(logged(0.3 + 0.5 * rise + noise), "x") == "up"
    assert direction(logged(0.3 + 0.5 * rise - fall + noise), "x") == "down"
    assert direction(logged(0.3 + noise), "x") == "flat"
    assert direction(logged(noise[:10]), "x") == ""


def test_segments_are_thirds_of_the_steps_and_keys_that_are_not_logged_have_no_column():
    run = logged([1.0, 2.0, 3.0, 4.0, 5.0, math.nan])
    assert segment_rows(run, ("x", "y")) == (
        {"segment": "early", "steps": "1–2", "x": 1.5},
        {"segment": "middle", "steps": "3–3", "x": 3.0},
        {"segment": "late", "steps": "4–5", "x": 4.5},
    )
    assert segment_rows(Run(), ("x",)) == ()


def test_the_time_to_a_bound_is_that_of_the_late_rows():
    noise = 0.01 * np.random.default_rng(0).normal(size=200)
    rising = course(logged(0.1 + np.clip(np.arange(200) - 80, 0, None) / 300 + noise), "x")
    late = rising.late_level
    assert time_sentence(rising, late + 50 / 300, "half") == "At this rate it reaches half in about 50 steps."
    assert time_sentence(rising, late + 10, "10") == ""  # not soon
    assert time_sentence(rising, 0.0, "0") == ""  # the other way
    assert time_sentence(course(logged(np.ones(100)), "x"), 2.0, "2") == ""


def test_the_highest_stretch_is_a_mean_of_so_many_rows():
    values = np.concatenate([np.zeros(40), np.ones(20), np.zeros(40)])
    assert highest_stretch(values, 20) == pytest.approx(1.0, abs=0.1)
    assert highest_stretch(np.array([1.0, 3.0]), 20) == 2.0


def test_what_was_computed_is_computed_again_once_a_row_is_added_or_replaced():
    run = logged(np.zeros(100))
    assert course(run, "x") is course(run, "x")
    run.append_scalars(101, {"x": 5.0})
    assert course(run, "x").values[-1] == 5.0
    run.append_scalars(101, {"x": 7.0})
    assert course(run, "x").values[-1] == 7.0


def test_a_long_series_is_not_copied():
    run = logged(np.arange(100.0))
    assert rows_of(run, "x")[1].base is run.series["x"].values.base


def long_runs(rows, *, broken_at):
    """The same log twice, whole and bounded: a reward that falls to 0 near the end, and one NaN long before."""
    g = np.random.default_rng(5)
    columns = {"reward": 0.8 + 0.05 * g.normal(size=rows), "entropy": 1 + 0.1 * g.normal(size=rows)}
    columns |= {"grad_norm": np.abs(0.5 + 0.1 * g.normal(size=rows)), "reward_std": np.full(rows, 0.2)}
    columns["reward"][broken_at:] = 0.01
    columns["grad_norm"][500] = np.nan
    whole, bounded = Run(), Run(bounded=True)
    for row in range(rows):
        for run in (whole, bounded):
            run.append_scalars(row + 1, {key: float(values[row]) for key, values in columns.items()})
    return whole, bounded


def test_a_bounded_run_of_ordinary_length_is_judged_as_a_whole_one():
    whole, bounded = long_runs(11_000, broken_at=10_900)
    assert diagnose_run(bounded).to_dict() == diagnose_run(whole).to_dict()


def test_a_long_bounded_run_shows_what_is_new_and_what_came_first():
    whole, bounded = long_runs(60_000, broken_at=59_970)
    for key in whole.series:
        assert len(bounded.series[key]) < 16_400
        for part, other in zip(latest(whole, key), latest(bounded, key), strict=True):
            np.testing.assert_array_equal(part, other)
        levels = [course(run, key).early_level for run in (whole, bounded)]
        assert levels[1] == pytest.approx(levels[0], rel=0.02)
    assert even_rows(bounded, "reward")[0].size < rows_of(bounded, "reward")[0].size
    told = [
        {(finding.rule, finding.severity, finding.steps) for finding in diagnose_run(run).findings}
        for run in (whole, bounded)
    ]
    assert (
        told[0]
        == told[1]
        == {
            ("environment-fault", "critical", (59_968, 60_000)),
            ("non-finite-values", "note", (501, 60_000)),
        }
    )
