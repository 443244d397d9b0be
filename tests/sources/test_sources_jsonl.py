from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foreshock.errors import ReadError
from foreshock.run import RunWriter, prepare_directory
from foreshock.sources import describe, open_run
from foreshock.sources.rows import EMPTY, NO_NUMBER
from foreshock.sources.settle import NO_STEP, REPEATED, SUPERSEDED

Written = Callable[..., Path]


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def tinker(step: int, reward: float) -> dict[str, float]:
    return {"progress/step": step, "optim/lr": 1e-5, "reward/mean": reward, "policy/entropy": 2.8, "step": step}


def test_tinker_rows_take_the_common_names_and_the_origin_is_kept(written: Written) -> None:
    run = open_run(written(lines(*(tinker(step, step / 10) for step in range(5)))))
    assert run.series["reward"].steps.tolist() == [0, 1, 2, 3, 4]
    assert run.series["reward"].values.tolist() == [0, 0.1, 0.2, 0.3, 0.4]
    keys = run.identity["source"]["keys"]
    assert keys["reward/mean"] == "reward"
    assert keys["policy/entropy"] == "entropy"
    assert keys["optim/lr"] == "learning_rate"
    assert run.identity["source"]["format"] == "JSONL metrics"


def test_progress_step_is_enough(written: Written) -> None:
    run = open_run(written(lines({"progress/step": 3, "x": 1.0}, {"progress/step": 4, "x": 2.0})))
    assert run.series["x"].steps.tolist() == [3, 4]


def test_later_rows_supersede_earlier_ones_after_a_resume(written: Written) -> None:
    # 0 … 5, a start that died after its first row, then the run that went on: as in a real Tinker log.
    order = [0, 1, 2, 3, 4, 5, 0, 0, 1, 2, 3]
    run = open_run(written(lines(*(tinker(step, float(row)) for row, step in enumerate(order)))))
    assert run.series["reward"].steps.tolist() == [0, 1, 2, 3]
    assert run.series["reward"].values.tolist() == [7, 8, 9, 10]
    assert run.skipped == {SUPERSEDED: 6, REPEATED: 1}
    assert "After 6 rows the steps begin again" in run.notices["begun_again"]


def test_a_resume_keeps_what_came_before_it_and_counts_each_row_once(written: Written) -> None:
    order = [*range(10), *range(6, 9)]
    run = open_run(written(lines(*({"step": step, "loss": float(row)} for row, step in enumerate(order)))))
    assert run.series["loss"].steps.tolist() == list(range(9))
    assert run.series["loss"].values.tolist() == [0, 1, 2, 3, 4, 5, 10, 11, 12]
    assert run.skipped[SUPERSEDED] == 4
    assert not run.notices
    assert len(run.series["loss"]) + sum(run.skipped.values()) == len(order)


def test_a_resume_with_evaluations_supersedes_both_kinds_of_row(written: Written) -> None:
    rows = [{"step": step, "loss": 0.0} for step in (1, 2, 3, 4)]
    rows.insert(2, {"step": 2, "eval_loss": 0.0})
    rows.append({"step": 4, "eval_loss": 0.0})
    rows += [{"step": 2, "eval_loss": 1.0}, {"step": 2, "loss": 1.0}, {"step": 3, "loss": 1.0}]
    run = open_run(written(lines(*rows)))
    assert run.series["loss"].steps.tolist() == [1, 2, 3]
    assert run.series["loss"].values.tolist() == [0, 1, 1]
    assert run.series["eval_loss"].steps.tolist() == [2]
    assert run.series["eval_loss"].values.tolist() == [1]
    assert run.skipped == {SUPERSEDED: 5}


def test_a_row_that_was_written_late_is_no_resume(written: Written) -> None:
    run = open_run(written(lines(*({"step": step, "loss": float(step)} for step in (1, 2, 4, 3, 5, 6)))))
    assert run.series["loss"].steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.series["loss"].values.tolist() == [1, 2, 3, 4, 5, 6]
    assert not run.skipped


def test_rows_of_a_step_are_merged_and_the_last_value_wins(written: Written) -> None:
    run = open_run(
        written(lines({"step": 1, "a": 1, "b": 2}, {"step": 1, "c": 3}, {"step": 1, "a": 9}, {"step": 2, "a": 4}))
    )
    assert {key: series.values.tolist() for key, series in run.series.items()} == {"a": [9, 4], "b": [2], "c": [3]}
    assert run.skipped == {REPEATED: 1}


def test_an_epoch_shared_with_an_evaluation_row_is_no_repetition(written: Written) -> None:
    run = open_run(
        written(lines({"step": 1, "loss": 1, "lr": 1, "epoch": 0.5}, {"step": 1, "eval_loss": 2, "epoch": 0.5}))
    )
    assert not run.skipped
    assert run.series["eval_loss"].values.tolist() == [2]


@pytest.mark.parametrize("word", ["NaN", "nan", '"nan"', '"NaN"', "-nan"])
def test_nan_in_every_notation(written: Written, word: str) -> None:
    run = open_run(written(f'{{"step": 1, "kl": {word}, "loss": 0.5}}\n{{"step": 2, "kl": 0.1, "loss": 0.4}}\n'))
    assert math.isnan(run.series["kl"].values[0])
    assert run.series["kl"].values[1] == 0.1
    assert run.series["loss"].values.tolist() == [0.5, 0.4]
    assert not run.skipped


@pytest.mark.parametrize(
    ("word", "value"),
    [("Infinity", math.inf), ("-Infinity", -math.inf), ("inf", math.inf), ('"-inf"', -math.inf), ("1e999", math.inf)],
)
def test_infinity_in_every_notation(written: Written, word: str, value: float) -> None:
    run = open_run(written(f'{{"step": 1, "kl": {word}}}\n'))
    assert run.series["kl"].values.tolist() == [value]


def test_a_word_in_a_text_is_not_taken_for_a_nan(written: Written) -> None:
    run = open_run(written('{"step": 1, "note": "so: NaN, then", "kl": NaN}\n'))
    assert math.isnan(run.series["kl"].values[0])
    assert run.skipped == {NO_NUMBER: 1}
    assert run.identity["source"]["not_numbers"] == {"note": 1}


def test_null_is_counted_and_said_not_judged(written: Written) -> None:
    run = open_run(written(lines({"step": 1, "loss": 0.5}, {"step": 2, "loss": None, "kl": 1.0})))
    assert run.series["loss"].steps.tolist() == [1]
    assert run.skipped == {EMPTY: 1}
    assert "loss (1)" in run.notices["null_values"]


def test_the_file_logger_of_verl(written: Written) -> None:
    content = lines(
        {"step": 1, "data": {"actor/entropy": 0.9, "critic/score/mean": 0.1, "critic/rewards/mean": 0.2}},
        {"step": 2, "data": {"actor/entropy": 0.8, "critic/score/mean": 0.3, "critic/rewards/mean": 0.4}},
    )
    run = open_run(written(content))
    assert run.series["entropy"].values.tolist() == [0.9, 0.8]
    assert run.series["reward"].values.tolist() == [0.1, 0.3]
    assert run.series["critic/rewards/mean"].values.tolist() == [0.2, 0.4]
    assert run.identity["source"]["keys"]["critic/score/mean"] == "reward"


def test_nested_objects_are_flattened(written: Written) -> None:
    run = open_run(written(lines({"step": 1, "policy": {"entropy": 2.0, "deep": {"x": 1}}})))
    assert run.series["entropy"].values.tolist() == [2.0]
    assert run.series["policy/deep/x"].values.tolist() == [1]


def test_a_wandb_history_is_read_by_the_training_step(written: Written) -> None:
    rows = [
        {"_step": 0, "_timestamp": 1.0, "train/global_step": 10, "train/loss": 0.5},
        {"_step": 1, "_timestamp": 2.0, "train/global_step": 20, "train/loss": 0.4, "eval/loss": 0.7},
    ]
    run = open_run(written(lines(*rows)))
    assert run.series["loss"].steps.tolist() == [10, 20]
    assert run.series["eval_loss"].steps.tolist() == [20]
    only_step = open_run(written(lines({"_step": 7, "loss": 1.0})))
    assert only_step.series["loss"].steps.tolist() == [7]


def test_a_key_that_was_renamed_between_versions_is_one_series(written: Written) -> None:
    run = open_run(written(lines({"step": 1, "completion_length": 90.0}, {"step": 2, "completions/mean_length": 91.0})))
    assert run.series["completions/mean_length"].values.tolist() == [90, 91]
    both = open_run(written(lines({"step": 1, "completion_length": 90.0, "completions/mean_length": 91.0})))
    assert both.series["completions/mean_length"].values.tolist() == [91]
    assert both.series["completion_length"].values.tolist() == [90]


def test_rows_without_any_step_are_numbered(written: Written) -> None:
    run = open_run(written(lines({"loss": 1.0}, {"loss": 2.0}, {"eval_loss": 5.0, "epoch": 1}, {"loss": 3.0})))
    assert run.series["loss"].steps.tolist() == [1, 2, 3]
    assert run.series["eval_loss"].steps.tolist() == [2]
    assert "no_step" in run.notices


def test_rows_without_a_step_among_others_are_counted(written: Written) -> None:
    run = open_run(
        written(lines({"step": 1, "loss": 1.0}, {"loss": 2.0}, {"step": 1.5, "loss": 2.0}, {"step": 2, "loss": 3.0}))
    )
    assert run.series["loss"].steps.tolist() == [1, 2]
    assert run.skipped == {NO_STEP: 2}


def test_missing_steps_are_no_fault(written: Written) -> None:
    run = open_run(written(lines({"step": 10, "a": 1}, {"step": 40, "a": 2})))
    assert run.series["a"].steps.tolist() == [10, 40]
    assert not run.skipped


def test_one_torn_line_costs_one_line(written: Written) -> None:
    content = lines({"step": 1, "a": 1}) + '{"step": 2, "a"\n' + lines({"step": 3, "a": 3}) + '{"step": 4, "a": 4'
    run = open_run(written(content))
    assert run.series["a"].steps.tolist() == [1, 3]
    assert run.skipped == {"torn or damaged lines": 2}


def test_marks_and_bytes_that_do_not_belong(written: Written) -> None:
    content = b'\xef\xbb\xbf{"step": 1, "a": 1}\r\n\0\0{"step": 2, "a": 2, "n": "\xff"}\n\0\0\0\n\n{"step": 3, "a": 3}'
    run = open_run(written(content))
    assert run.series["a"].values.tolist() == [1, 2, 3]
    utf16 = open_run(written('{"step": 1, "a": 1}\r\n{"step": 2, "a": 2}\r\n'.encode("utf-16")))
    assert utf16.series["a"].values.tolist() == [1, 2]


def test_objects_without_numbers_are_no_metrics(written: Written) -> None:
    with pytest.raises(ReadError, match="no training log was found"):
        open_run(written(lines({"messages": [{"role": "user"}]}, {"messages": []})))


def test_own_metrics_file(tmp_path: Path) -> None:
    folder = prepare_directory(tmp_path / "run")
    writer = RunWriter(folder, start_step=0, identity={}, notices={})
    for step in (1, 2):
        writer.write_metrics(step, {"loss": step / 2, "kl": math.nan})
    writer.end("finished")
    run = open_run(folder / "metrics.jsonl")
    assert run.series["loss"].values.tolist() == [0.5, 1.0]
    assert np.isnan(run.series["kl"].values).all()
    assert open_run(folder).series["loss"].values.tolist() == [0.5, 1.0]


def test_describe_says_what_was_read(written: Written) -> None:
    path = written(lines(*(tinker(step, 0.5) for step in (3, 4, 5)), {"step": 5, "note": "x", "y": 1}))
    found = describe(open_run(path))
    assert found["format"] == "JSONL metrics"
    assert found["path"] == str(path)
    assert found["rows"] == 4
    assert found["steps"] == [3, 5]
    assert found["distinct_steps"] == 3
    assert found["keys"]["reward"] == {"values": 3, "from": ["reward/mean"]}
    assert found["keys"]["note"] == {"values": 0, "from": ["note"]}
    assert found["skipped"] == {NO_NUMBER: 1}
