"""Two runs side by side, from run directories on disk to what the command prints."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from foreshock.cli import main
from foreshock.run import Block, RunWriter, prepare_directory
from foreshock.sketch import LogRatioSketch


def write_run(folder, *, seed, growth=1.0, reward_falls=False, learning_rate=1e-5):
    rng = np.random.default_rng(seed)
    identity = {"trainer": "GRPOTrainer", "config": {"learning_rate": learning_rate, "beta": 0.04}}
    writer = RunWriter(prepare_directory(folder), start_step=0, identity=identity, notices={})
    for index in range(40):
        sketch = LogRatioSketch()
        for slice_id, scale in enumerate((1.0, growth ** max(0, index - 10))):
            values = 0.2 * scale * rng.standard_t(3, size=2000)
            sketch.update(values.astype(np.float32), np.full(2000, slice_id))
        writer.write_block(Block(index, 10 * index + 1, 10 * index + 10, {"policy/ref": sketch}))
        for step in range(10 * index + 1, 10 * index + 11):
            fall = 0.3 if reward_falls and step > 300 else 0
            row = {"loss": rng.normal(0, 0.01), "reward": 0.5 - fall + rng.normal(0, 0.05), "num_tokens": 9.0 * step}
            writer.write_metrics(step, row)
    writer.end("finished")
    return str(folder)


@pytest.fixture
def call():
    runner = CliRunner()
    return lambda *arguments: runner.invoke(main, ["compare", *arguments], env={"NO_COLOR": "1", "COLUMNS": "100"})


def test_what_parts_first_stands_first(call, tmp_path):
    a = write_run(tmp_path / "a", seed=1)
    b = write_run(tmp_path / "b", seed=2, growth=1.06, reward_falls=True, learning_rate=1e-4)
    result = call(a, b, "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.output)
    first, *_, last = [row["key"] for row in found["differences"]]
    assert first.endswith("/post_tool")
    assert last == "reward"
    assert 101 <= found["differences"][0]["since_step"] < found["differences"][-1]["since_step"] <= 311
    assert {row["name"]: (row["a"], row["b"]) for row in found["settings"]}["config.learning_rate"] == (1e-5, 1e-4)
    assert "loss" in found["alike"]
    assert found["not_compared"] == {"num_tokens": "only counts up"}
    assert found["runs"][0]["verdict"] == "healthy"
    text = call(a, b).output
    assert "parts first" in text
    assert "A early" in text
    assert "config.learning_rate" in text


def test_two_seeds_of_one_thing_are_alike(call, tmp_path):
    result = call(write_run(tmp_path / "a", seed=3), write_run(tmp_path / "b", seed=4))
    assert result.exit_code == 0, result.output
    assert "Nothing differs by more than noise." in result.output


def test_nothing_in_common_cannot_be_judged(call, tmp_path):
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps({"step": step, "accuracy": 0.5}) + "\n" for step in range(50)))
    result = call(write_run(tmp_path / "a", seed=5), str(other))
    assert result.exit_code == 3
    assert "Nothing could be compared." in result.output


def test_a_missing_run_is_wrong_use(call, tmp_path):
    assert call(write_run(tmp_path / "a", seed=6), str(tmp_path / "none")).exit_code == 2


def test_tails_that_only_grow_are_compared(tmp_path):
    from foreshock.comparison import compare
    from foreshock.sources import open_run

    runs = [open_run(write_run(tmp_path / name, seed=1, growth=1.2)) for name in "ab"]
    for run in runs:
        run.blocks = run.blocks[12:]
    found = compare(*runs)
    assert "foreshock/policy_ref/abs_p99/post_tool" in found.alike
    assert list(found.not_compared) == ["num_tokens"]


def test_single_blocks_with_long_tails_do_not_hide_a_difference_of_the_others(tmp_path):
    from foreshock.comparison import compare
    from foreshock.sources import open_run

    runs = [open_run(write_run(tmp_path / name, seed=seed)) for seed, name in enumerate("ab")]
    runs[0].blocks = list(runs[0].blocks)  # those of a run directory stay in its file
    for place, block in enumerate(runs[0].blocks):
        wide = LogRatioSketch()
        values = (40.0 if place % 9 == 5 else 0.5) * np.random.default_rng(place).standard_t(3, 2000)
        wide.update(values.astype(np.float32), np.ones(2000, int))
        runs[0].blocks[place] = replace(block, sketches={"policy/ref": wide})
    found = compare(*runs)
    assert found.differences["foreshock/policy_ref/abs_p99/post_tool"].shift < 0
