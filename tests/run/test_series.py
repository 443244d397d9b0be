import numpy as np

from foreshock.run import Run, Series


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
