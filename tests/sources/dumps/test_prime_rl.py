from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import rollout_dumps as dumps

from foreshock.errors import ReadError
from foreshock.sources import open_run
from foreshock.sources.compressed import TORN
from foreshock.sources.dumps import prime_rl
from foreshock.sources.dumps.collect import UNREADABLE
from foreshock.sources.dumps.tokens import UNEVEN


def test_blocks_series_and_counters_are_those_of_the_rollouts(tmp_path: Path) -> None:
    steps = [dumps.rollouts(step) for step in range(12)]
    run = open_run(dumps.prime_rl(tmp_path / "outputs", steps))
    assert [(block.first_step, block.last_step) for block in run.blocks] == [(0, 9), (10, 11)]
    expected = dumps.truth([sample for samples in steps[:10] for sample in samples], "old", "rollout")
    sketch = run.blocks[0].sketches["policy/rollout"]
    assert np.array_equal(sketch.counts, expected.counts)
    assert np.array_equal(sketch.extremes, expected.extremes)
    assert run.series["reward"].values == pytest.approx([np.mean([s.reward for s in samples]) for samples in steps])
    assert run.series["entropy"].values == pytest.approx([1.25] * 12)
    assert run.blocks[1].counters["rows"] == (8.0, 8.0)
    assert run.blocks[1].total("observation_tokens") == sum(s.mask.count(0) for samples in steps[10:] for s in samples)
    assert not run.skipped
    assert run.identity["source"]["format"] == "prime-rl token export"


def test_a_step_without_its_marker_is_left_out_and_counted(tmp_path: Path) -> None:
    folder = dumps.prime_rl(tmp_path, [dumps.rollouts(step) for step in range(3)])
    (folder / "token_exports" / "step_2" / "STABLE").unlink()
    run = open_run(folder)
    assert run.last_step == 1
    assert run.skipped["steps that were not written to the end"] == 1


def test_a_node_that_another_branch_trains_is_context_and_no_observation(tmp_path: Path) -> None:
    sample = dumps.rollouts(0)[0]
    record = dumps.prime_rl_record(sample, 0)
    shared = len(sample.prompt) + sample.mask.index(0)  # the text before the tool result is trained elsewhere
    record["loss_mask"][:shared] = [False] * shared
    path = tmp_path / "rank_0.jsonl"
    path.write_text(json.dumps(record) + "\n")
    (batch,) = prime_rl.read(path, Counter())
    text = sample.mask.index(0)
    assert batch.tokens.token_ids.shape == (1, len(sample.ids))
    assert not batch.tokens.observation_mask[0, :text].any()
    assert not batch.tokens.response_mask[0, :text].any()
    assert batch.tokens.observation_mask.sum() == sample.mask.count(0)
    assert batch.tokens.slice_ids()[0, -1]


def test_values_that_were_not_finite_stand_as_null_and_are_counted(tmp_path: Path) -> None:
    record = dumps.prime_rl_record(dumps.rollouts(0)[0], 0)
    record["trainer_logprobs"][-1] = None
    path = tmp_path / "rank_0.jsonl"
    path.write_text(json.dumps(record) + "\n")
    run = open_run(path)
    assert run.blocks[0].counters["nonfinite/policy"] == (1.0,)
    assert run.blocks[0].sketches["policy/rollout"].tally("post_tool")["nan"] == 1


def test_damaged_lines_and_columns_of_other_lengths_are_counted(tmp_path: Path) -> None:
    whole = dumps.prime_rl_record(dumps.rollouts(0)[0], 0)
    uneven = {**whole, "inference_logprobs": whole["inference_logprobs"][:-1]}
    other_step = {**whole, "export_step": 7}
    path = tmp_path / "rank_0.jsonl"
    lines = [json.dumps(record) for record in (whole, uneven, other_step)]
    path.write_text("\n".join([*lines, lines[0][:500], "[1]", ""]))
    run = open_run(path)
    assert run.identity["source"]["rows"] == 1
    assert run.skipped == {UNEVEN: 1, prime_rl.OTHER_STEP: 1, TORN: 2}


@pytest.mark.parametrize("step", [-1, 2**60])
def test_a_step_that_is_none_is_damage(tmp_path: Path, step: int) -> None:
    records = [{**dumps.prime_rl_record(dumps.rollouts(0)[0], 0), "export_step": number} for number in (step, 4)]
    path = tmp_path / "rank_0.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    run = open_run(path)
    assert (run.last_step, run.skipped) == (4, {TORN: 1})


def test_another_schema_version_is_refused_by_its_number(tmp_path: Path) -> None:
    record = {**dumps.prime_rl_record(dumps.rollouts(0)[0], 0), "schema_version": 2}
    path = tmp_path / "rank_0.jsonl"
    path.write_text(json.dumps(record) + "\n")
    with pytest.raises(ReadError, match="schema_version 2, this version of Foreshock reads 1"):
        list(prime_rl.read(path, Counter()))


def test_one_unreadable_file_costs_only_itself(tmp_path: Path) -> None:
    folder = dumps.prime_rl(tmp_path, [dumps.rollouts(step) for step in range(2)])
    broken = folder / "token_exports" / "step_1" / "rank_1.jsonl"
    broken.write_text(broken.read_text().replace('"schema_version":1', '"schema_version":3'))
    run = open_run(folder)
    assert run.skipped[UNREADABLE] == 1
    assert "schema_version 3" in run.notices["unreadable_files"]
    assert run.blocks[0].counters["rows"] == (8.0, 4.0)
