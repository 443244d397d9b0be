from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshock.run import Run
from foreshock.sources import rows as rows_module
from foreshock.sources.rows import THINNED, Rows, number
from foreshock.sources.settle import REPEATED, SUPERSEDED


def run_of(rows: list[dict[str, float]]) -> Run:
    collected = Rows()
    for row in rows:
        collected.add(row)
    return collected.run(Path("log"), "test")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        (" 1e-06 ", 1e-6),
        ("'0.1'", 0.1),
        ("np.float64(0.5)", 0.5),
        ("np.float32(nan)", math.nan),
        ("tensor(0.25, device='cuda:0')", 0.25),
        ("tensor(0.25", 0.25),
        ("-inf", -math.inf),
        ("Infinity", math.inf),
        ("None", math.nan),
        (None, math.nan),
        (True, 1.0),
        (10**400, math.inf),
    ],
)
def test_numbers_in_every_notation(text: object, value: float) -> None:
    assert number(text) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize("text", ["", "1m 29s", "5/10", "0.5 GB", "1.2.3", [1.0], {"a": 1}])
def test_what_is_no_number(text: object) -> None:
    assert number(text) is None


ROWS = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 99).map(float), min_size=1, max_size=3),
    max_size=30,
)


@given(ROWS)
def test_rising_steps_keep_every_value(rows: list[dict[str, float]]) -> None:
    run = run_of([{"step": step, **row} for step, row in enumerate(rows)])
    for key in "abc":
        expected = [(step, row[key]) for step, row in enumerate(rows) if key in row]
        series = run.series.get(key)
        found = [] if series is None else list(zip(series.steps.tolist(), series.values.tolist(), strict=True))
        assert found == expected
    assert not run.skipped


@given(st.lists(st.integers(0, 12), max_size=40))
def test_every_row_is_kept_once_or_counted_once(steps: list[int]) -> None:
    run = run_of([{"step": step, "a": float(row)} for row, step in enumerate(steps)])
    kept = len(run.series["a"]) if steps else 0
    assert kept + run.skipped[SUPERSEDED] + run.skipped[REPEATED] == len(steps)
    if steps:
        found = run.series["a"]
        assert (np.diff(found.steps) > 0).all()
        last_row = {step: float(row) for row, step in enumerate(steps)}
        assert all(last_row[step] == value for step, value in zip(found.steps.tolist(), found.values, strict=True))
        assert found.values.max() == len(steps) - 1  # the last row of the log always counts


def test_a_series_can_be_appended_to_without_touching_its_neighbours() -> None:
    run = run_of([{"step": step, "a": 1.0, "b": 2.0} for step in range(3)])
    run.series["a"].append(3, 5.0)
    run.series["a"].append(3, 6.0)
    assert run.series["a"].values.tolist() == [1, 1, 1, 6]
    assert run.series["b"].steps.tolist() == [0, 1, 2]


def test_a_log_beyond_the_limit_is_thinned_evenly_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MOST_VALUES", 20_000)
    rows = [{"step": step, "a": float(step)} for step in range(50_000)]
    rows[100:100] = [{"step": 99, "eval_a": 1.0}]
    run = run_of(rows)
    series = run.series["a"]
    assert len(series) <= 20_000
    assert (series.steps == series.values).all()
    assert set(np.diff(series.steps).tolist()) <= {2, 4, 8}
    assert run.series["eval_a"].values.tolist() == [1.0]
    assert len(series) + 1 + run.skipped[THINNED] == len(rows)
    assert "thinned" in run.notices


def test_many_sets_of_keys_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MOST_TABLES", 3)
    rows = [{"step": step, f"k{step % 7}": 1.0, f"j{step % 5}": 2.0} for step in range(70)]
    run = run_of(rows)
    assert sum(map(len, run.series.values())) == 140
    assert run.series["k3"].steps.tolist() == list(range(3, 70, 7))
    assert not run.skipped


def test_keys_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MOST_KEYS", 3)
    run = run_of([{"step": 1, "a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}])
    assert set(run.series) == {"a", "b"}
    assert run.skipped == {"values of keys beyond the first 3": 2}
