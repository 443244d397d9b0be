from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import rollout_dumps

from foreshock.errors import ReadError
from foreshock.run import RunWriter, prepare_directory
from foreshock.sources import find_runs, open_run

Written = Callable[..., Path]

LINES = '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n'


def state(first: float, rows: int) -> str:
    return json.dumps({"log_history": [{"step": step, "loss": first * step} for step in range(1, rows + 1)]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_each_kind_of_run_in_a_folder_is_found_once(folder: Path, written: Written) -> None:
    writer = RunWriter(prepare_directory(folder / "a-watched"), start_step=0, identity={}, notices={})
    writer.write_metrics(1, {"loss": 0.5})
    writer.end("finished")
    written(state(0.5, 2), "b-checkpoints/checkpoint-2/trainer_state.json")
    written(state(0.5, 4), "b-checkpoints/checkpoint-4/trainer_state.json")
    written(LINES, "c-tinker/metrics.jsonl")
    written(LINES, "c-tinker/logs.jsonl")
    written("x\n" * 1000 + "step:1 - actor/entropy:0.5 - actor/lr:1e-06\n", "d-logs/verl.out")
    written("Step,loss\n1,0.5\n2,0.25\n", "d-logs/deep/er/table")
    written("".join(f"step {n}: loss=0.5\n" for n in range(3)), "d-logs/pairs.txt")
    found = find_runs(folder)
    assert [str(path.relative_to(folder)) for path in found] == [
        "a-watched",
        "b-checkpoints",
        "c-tinker",
        "d-logs/deep/er/table",
        "d-logs/pairs.txt",
        "d-logs/verl.out",
    ]
    for path in found:
        assert open_run(path).series


def test_what_is_no_log_is_passed_over(folder: Path, written: Written) -> None:
    written('{"hidden_size": 64, "rope_theta": 10000.0}\n', "config.json")
    written('{"prompt": "a", "label": 1}\n{"prompt": "b", "label": 2}\n', "data.jsonl")
    written("word,count\na,1\nb,2\n", "table.csv")
    written("# A run\nAt step 3, with lr=0.1, it stops.\n", "README.md")
    written(bytes(range(256)) * 50, "model.bin")
    written("", "empty.log")
    written(LINES, ".cache/log")
    written(LINES, "1/2/3/4/5/6/log")
    os.symlink(folder, folder / "link")
    assert find_runs(folder) == []
    with pytest.raises(ReadError, match=r"no log with a row of training at its start, but README\.md, config\.json"):
        open_run(folder)


def test_states_of_different_runs_are_different_runs(folder: Path, written: Written) -> None:
    for name, first in (("a", 0.5), ("b", 0.75)):
        written(state(first, 3), f"{name}/trainer_state.json")
    assert find_runs(folder) == [folder / "a", folder / "b"]
    written(state(0.5, 2), "a/checkpoint-2/trainer_state.json")
    written(state(0.25, 2), "c/checkpoint-2/trainer_state.json")  # a run that never ended
    assert find_runs(folder) == [folder / "a", folder / "b", folder / "c"]
    with pytest.raises(ReadError, match=r"holds 3 runs\. Pass one of them: .*/a, .*/b, .*/c\."):
        open_run(folder)


def test_the_only_run_in_a_folder_is_opened(folder: Path, written: Written) -> None:
    path = written(LINES, "out/train.log")
    assert find_runs(folder) == [path]
    assert open_run(folder).series["loss"].values.tolist() == [0.5, 0.25]


def test_a_place_that_is_named_is_its_own_run(folder: Path, written: Written) -> None:
    path = written("late", "train.log")
    assert find_runs(path) == [path]
    assert find_runs(folder / "none") == [folder / "none"]


def test_a_dump_is_found_where_its_files_lie_and_hides_no_other_run(folder: Path, written: Written) -> None:
    written(LINES, "a/metrics.jsonl")
    rollout_dumps.prime_rl(folder / "b", [rollout_dumps.rollouts(0)])
    rollout_dumps.nemo_rl(folder / "c", [rollout_dumps.rollouts(0)])
    assert find_runs(folder) == [folder / "a", folder / "b" / "token_exports", folder / "c"]
    assert find_runs(folder / "b") == [folder / "b" / "token_exports"]
    assert open_run(folder / "b").identity["source"]["format"] == "prime-rl token export"


def test_a_binary_file_that_holds_the_text_of_a_row_is_no_log(folder: Path, written: Written) -> None:
    written(LINES.encode() + bytes(range(256)) * 50, "a/model.bin")
    assert find_runs(folder) == []
