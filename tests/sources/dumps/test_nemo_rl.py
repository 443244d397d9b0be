from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import rollout_dumps as dumps

from foreshock.errors import ReadError
from foreshock.sources import open_run
from foreshock.sources.dumps import nemo_rl


def test_blocks_and_series_are_those_of_the_rollouts(tmp_path: Path) -> None:
    steps = [dumps.rollouts(step) for step in range(12)]
    run = open_run(dumps.nemo_rl(tmp_path, steps))
    assert [(block.first_step, block.last_step) for block in run.blocks] == [(1, 10), (11, 12)]
    expected = dumps.truth([sample for samples in steps[:10] for sample in samples], "old", "rollout")
    assert np.array_equal(run.blocks[0].sketches["old/rollout"].counts, expected.counts)
    assert run.blocks[1].total("observation_tokens") == sum(s.mask.count(0) for samples in steps[10:] for s in samples)
    assert run.series["reward"].values == pytest.approx([np.mean([s.reward for s in samples]) for samples in steps])
    assert not run.skipped


def test_log_probabilities_filled_with_zero_make_no_pair(tmp_path: Path) -> None:
    run = open_run(dumps.nemo_rl(tmp_path, [dumps.rollouts(0)], forced=True))
    assert run.pair is None
    assert "zeros in place of the other's" in run.notices["no-comparator"]
    assert run.skipped["old/rollout tokens with 0.0 in place of a log-probability"] == run.blocks[0].total(
        "response_tokens"
    )


def test_single_placeholders_are_left_out_and_counted(tmp_path: Path) -> None:
    samples = dumps.rollouts(0)
    place = next(i for i, value in enumerate(samples[0].old) if value < -1 and samples[0].mask[i])
    samples[0].rollout[place] = 0.0
    run = open_run(dumps.nemo_rl(tmp_path, [samples]))
    assert run.skipped == {"old/rollout tokens with 0.0 in place of a log-probability": 1}
    assert run.blocks[0].sketches["old/rollout"].extremes.max() < 1


def test_rows_that_are_not_trained_are_left_out(tmp_path: Path) -> None:
    path = dumps.nemo_rl(tmp_path, [dumps.rollouts(0)]) / "train_data_step1.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[0]["sample_loss_mask"] = [0.0]
    path.write_text("\n".join(map(json.dumps, records)))
    run = open_run(tmp_path)
    assert run.skipped == {nemo_rl.UNTRAINED: 1}
    assert run.blocks[0].counters["rows"] == (7.0,)


def test_nan_as_python_writes_it_is_read(tmp_path: Path) -> None:
    path = dumps.nemo_rl(tmp_path, [dumps.rollouts(0)]) / "train_data_step1.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    length = records[0]["input_lengths"][0]
    records[0]["prev_logprobs"][0][length - 1] = float("nan")
    path.write_text("\n".join(map(json.dumps, records)))
    assert open_run(tmp_path).blocks[0].counters["nonfinite/old"] == (1.0,)


def test_a_name_without_a_step_is_refused(tmp_path: Path) -> None:
    path = dumps.nemo_rl(tmp_path, [dumps.rollouts(0)]) / "train_data_step1.jsonl"
    renamed = path.rename(tmp_path / "samples.jsonl")
    with pytest.raises(ReadError, match="says no step in its name"):
        open_run(renamed)
