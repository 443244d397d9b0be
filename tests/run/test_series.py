import numpy as np
import pytest
from scipy.signal import lfilter

from foreshock.detect.series_change import step_noise
from foreshock.run import LATEST_ROWS, Run, Series
from foreshock.run.series import MOST_ROWS


def test_a_series_grows_past_its_first_allocation_and_stays_a_view():
    series = Series("loss")
    for step in range(1000):
        series.append(step, step / 2)
    np.testing.assert_array_equal(series.steps, np.arange(1000))
    np.testing.assert_array_equal(series.values, np.arange(1000) / 2)
    assert series.values.base is not None


def test_a_repeated_step_supersedes_its_earlier_value():
    series = Series("loss")
    series.append(1, 1.0)
    series.append(1, 2.0)
    assert series.values.tolist() == [2.0]


def test_a_run_keeps_numbers_and_counts_the_rest():
    run = Run()
    run.append_scalars(1, {"loss": 1, "note": "text", "flag": True, "kl": None})
    assert set(run.series) == {"loss"}
    assert run.skipped["values that are not numbers"] == 2


def fill(values, steps=None, *, bounded=True):
    series = Series("x", bounded=bounded)
    for step, value in zip(np.arange(len(values)) if steps is None else steps, values, strict=True):
        series.append(int(step), float(value))
    return series


def test_a_bounded_series_keeps_every_row_up_to_its_bound_and_never_more():
    values = np.random.default_rng(0).normal(size=150_000)
    whole = fill(values[:MOST_ROWS])
    np.testing.assert_array_equal(whole.values, values[:MOST_ROWS])
    assert whole.level == 0
    series = Series("x", bounded=True)
    for step, value in enumerate(values):
        series.append(step, value)
        assert len(series) <= MOST_ROWS
    assert series.appended == len(values)
    assert len(series.values.base) == MOST_ROWS
    np.testing.assert_array_equal(series.values[-LATEST_ROWS:], values[-LATEST_ROWS:])
    np.testing.assert_array_equal(series.values, values[series.steps])  # a row that stays is a row that was logged
    assert (np.diff(series.steps) > 0).all()


@pytest.mark.parametrize("every", [1, 2, 5, 8, 10, 144])
@pytest.mark.parametrize("period", [2, 3, 7])
def test_no_cadence_and_no_period_of_a_log_is_in_step_with_the_thinning(every, period):
    rows = np.arange(100_000)
    series = fill(rows % period, every * rows)
    steps, values = series.even
    assert MOST_ROWS // 4 < len(steps) < MOST_ROWS
    in_each_tenth = np.bincount(steps // (every * 10_000), minlength=10) / len(steps)
    np.testing.assert_allclose(in_each_tenth, 0.1, atol=0.02)
    np.testing.assert_allclose(np.bincount(values.astype(int)) / len(values), 1 / period, atol=0.03)


def test_a_series_keeps_the_same_rows_of_all_keys_and_counts_what_is_not_finite():
    values = np.random.default_rng(1).normal(size=60_000)
    values[[70, 71, 900, 59_999]] = np.nan
    series, other = fill(values), fill(np.zeros(60_000))
    np.testing.assert_array_equal(series.steps, other.steps)
    assert series.not_finite == (4, 70)
    assert other.not_finite == (0, None)
    assert fill(values, bounded=False).not_finite == (4, 70)


def test_autocorrelated_noise_stays_so_when_rows_are_thinned():
    """The noise that the detectors estimate is that of a row, and that of a mean of thinned rows is as they say."""
    g, rho = np.random.default_rng(2), 0.9
    noise = lfilter([1.0], [1.0, -rho], g.normal(size=400_000))[1_000:]
    _, values = fill(noise).even
    deviation, of_a_mean = step_noise(values[:1_000], values[1_000:])
    assert deviation == pytest.approx(noise.std(), rel=0.05)
    assert of_a_mean == pytest.approx(noise.std() * 1.13, rel=0.1)  # gaps of 64 rows on average: ρ is 0.12 there


def test_steps_that_go_back_and_forth_for_ever_are_bounded_too():
    series = fill(np.zeros(50_000), np.arange(50_000) % 2)
    assert len(series) <= MOST_ROWS
