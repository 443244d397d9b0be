from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foreshock.errors import ReadError
from foreshock.sources import open_run
from foreshock.sources.trainer_state import OTHER_BRANCHES, TORN


def rows(last: int, value: float = 0.0) -> list[dict[str, float]]:
    return [
        {"step": step, "epoch": step / 100, "loss": value + step / 10, "completion_length": 90.0, "kl": math.nan}
        for step in range(10, last + 1, 10)
    ]


def write_state(folder: Path, history: list[Any], **fields: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trainer_state.json"
    content = {"best_metric": None, "global_step": 50, "max_steps": 800, "log_history": history, **fields}
    path.write_text(json.dumps(content, indent=2, sort_keys=True))
    return path


def test_a_state_with_evaluations_and_a_closing_row(tmp_path: Path) -> None:
    history: list[Any] = rows(50)
    history.insert(3, {"step": 30, "epoch": 0.3, "eval_loss": 2.0, "eval_runtime": 1.0})
    history.append({"step": 50, "epoch": 0.5, "train_runtime": 9.0, "train_loss": 0.3, "total_flos": 0.0})
    run = open_run(write_state(tmp_path, history))
    assert run.series["loss"].steps.tolist() == [10, 20, 30, 40, 50]
    assert np.isnan(run.series["kl"].values).all()
    assert run.series["completions/mean_length"].values.tolist() == [90.0] * 5
    assert run.series["eval_loss"].steps.tolist() == [30]
    assert "train_runtime" not in run.series
    assert run.identity["summary"]["train_runtime"] == 9.0
    assert run.identity["trainer_state"]["max_steps"] == 800
    assert run.identity["source"]["rows"] == 7
    assert not run.skipped


def test_a_null_is_a_nan(tmp_path: Path) -> None:
    run = open_run(write_state(tmp_path, [{"step": 1, "loss": None, "kl": 0.5}]))
    assert np.isnan(run.series["loss"].values).all()


def test_a_checkpoint_and_its_file_are_the_same_run(tmp_path: Path) -> None:
    path = write_state(tmp_path / "checkpoint-30", rows(30))
    assert open_run(path).series["loss"].values.tolist() == open_run(path.parent).series["loss"].values.tolist()


def test_of_checkpoints_that_continue_each_other_the_longest_is_the_run(tmp_path: Path) -> None:
    for last in (20, 100, 60):
        write_state(tmp_path / f"checkpoint-{last}", rows(last))
    run = open_run(tmp_path)
    assert run.series["loss"].steps.tolist() == list(range(10, 101, 10))
    assert run.path == tmp_path / "checkpoint-100" / "trainer_state.json"
    assert not run.skipped
    write_state(tmp_path, rows(120))
    assert open_run(tmp_path).last_step == 120


def test_a_branch_that_was_left_is_counted(tmp_path: Path) -> None:
    write_state(tmp_path / "checkpoint-100", rows(100))
    write_state(tmp_path / "checkpoint-50", [*rows(40), {"step": 50, "loss": -1.0}])
    run = open_run(tmp_path)
    assert run.last_step == 100
    assert run.skipped == {OTHER_BRANCHES: 1}


def test_a_damaged_checkpoint_beside_whole_ones(tmp_path: Path) -> None:
    write_state(tmp_path / "checkpoint-20", rows(20))
    (tmp_path / "checkpoint-30").mkdir()
    (tmp_path / "checkpoint-30" / "trainer_state.json").write_bytes(b"\0" * 300)
    run = open_run(tmp_path)
    assert run.last_step == 20
    assert run.skipped == {"unreadable checkpoints": 1}


def test_checkpoints_of_different_runs_are_not_mixed(tmp_path: Path) -> None:
    write_state(tmp_path / "a", rows(40))
    write_state(tmp_path / "b", rows(30, value=5.0))
    with pytest.raises(ReadError, match=r"holds checkpoints of different runs\. Pass one of them"):
        open_run(tmp_path)


def test_the_whole_rows_of_a_torn_state_are_read(tmp_path: Path) -> None:
    path = write_state(tmp_path, rows(100))
    content = path.read_text()
    path.write_text(content[: content.index('"step": 70')])
    run = open_run(path)
    assert run.series["loss"].steps.tolist() == [10, 20, 30, 40, 50, 60]
    assert run.skipped == {TORN: 1}


def test_a_history_alone(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(json.dumps(rows(30)))
    assert open_run(path).series["loss"].steps.tolist() == [10, 20, 30]


def test_a_history_without_rows_is_an_empty_run(tmp_path: Path) -> None:
    run = open_run(write_state(tmp_path, []))
    assert not run.series
    assert run.identity["source"]["rows"] == 0


def test_other_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model": {"layers": 3}}, indent=2))
    with pytest.raises(ReadError, match="no training log was found"):
        open_run(path)
    path.write_text(json.dumps({"log_history": {"loss": [1, 2]}}))
    with pytest.raises(ReadError, match="has no log_history, the list of logged rows"):
        open_run(path)


def test_a_state_that_transformers_wrote(tmp_path: Path) -> None:
    trainer_callback = pytest.importorskip("transformers.trainer_callback")
    state = trainer_callback.TrainerState(global_step=30, max_steps=100, log_history=rows(30))
    state.save_to_json(str(tmp_path / "trainer_state.json"))
    run = open_run(tmp_path)
    assert run.series["loss"].steps.tolist() == [10, 20, 30]
    assert np.isnan(run.series["kl"].values).all()


def test_a_run_of_trl_by_its_checkpoints_and_by_its_console(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1, "a": 2, "b": 3}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<pad>")
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=4, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    )
    trainer = trl.SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_dict({"text": ["a b a b", "b a b a"] * 8}),
        args=trl.SFTConfig(
            output_dir=str(tmp_path), max_steps=3, save_steps=1, logging_steps=1, report_to="none", use_cpu=True,
            bf16=False, per_device_train_batch_size=2, save_only_model=True,
        ),
    )  # fmt: skip
    trainer.train()
    printed = capfd.readouterr().out
    trainer.state.save_to_json(str(tmp_path / "trainer_state.json"))
    run = open_run(tmp_path)
    expected = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert run.series["loss"].steps.tolist() == [1, 2, 3]
    assert run.series["loss"].values.tolist() == expected
    assert run.identity["summary"]["train_runtime"] > 0
    assert not run.skipped
    assert open_run(tmp_path / "checkpoint-2").last_step == 2
    shutil.rmtree(tmp_path / "checkpoint-2")
    assert open_run(tmp_path).series["loss"].values.tolist() == expected

    log = tmp_path / "console.txt"
    log.write_text(printed)
    console = open_run(log)
    assert console.series["loss"].steps.tolist() == [1, 2, 3]
    assert console.series["loss"].values.tolist() == pytest.approx(expected, rel=1e-3)
    assert set(run.series) <= {*console.series, "num_tokens", "total_flos"}
    assert console.identity["summary"]["train_runtime"] > 0
