from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foreshock.errors import ReadError
from foreshock.sources import open_run
from foreshock.sources.console import OTHER
from foreshock.sources.rows import NO_NUMBER
from foreshock.sources.settle import REPEATED

Written = Callable[..., Path]

TRL = """\
Loading checkpoint shards: 100%|██████████| 2/2 [00:01<00:00,  1.71it/s]
{'model': {'lora_r': 8, 'loss': 'dapo'}, 'seed': 3, 'lr': 1e-5}
{'lr': 1e-05, 'loss': 'dapo'}
  0%|          | 0/300 [00:00<?, ?it/s]\r  0%|          | 1/300 [00:05<28:01,  5.62s/it]\r\
{'loss': 0.1, 'grad_norm': np.float64(0.5), 'reward': np.float64(0.25), 'kl': nan, \
'completion_length': 90.5, 'epoch': 0.1}
\r  1%|          | 2/300 [00:10<28:01,  5.62s/it]\x1b[32m{'loss': -inf, 'grad_norm': None, 'reward': 0.5, 'kl': 0.2, \
'completion_length': 91, 'epoch': 0.2}\x1b[0m
{'eval_loss': 2.5, 'eval_runtime': 1.0, 'epoch': 0.2}
UserWarning: something {'odd': 1}
{'loss': '0.3', 'grad_norm': '1e-06', 'reward': '0.75', 'kl': '0.1', 'completion_length': '92', 'epoch': '0.3'}
{'train_runtime': 12.5, 'train_samples_per_second': 3.1, 'train_loss': 0.2, 'epoch': 0.3}
"""

VERL = (
    "(TaskRunner pid=91) \x1b[36mstep:{step} - actor/entropy:0.3{step} - actor/kl_loss:np.float64(0.001) - "
    "actor/pg_loss:-0.0{step} - critic/score/mean:{step}.5 - critic/rewards/mean:0.1 - actor/grad_norm:nan - "
    "val-core/openai/gsm8k/acc/mean@1:0.25 - actor/lr:1e-06\x1b[0m\n"
)


def test_dict_lines_of_trl_among_bars_colours_and_text(written: Written) -> None:
    run = open_run(written(TRL))
    assert run.identity["source"]["format"] == "console log (dict lines)"
    assert run.series["loss"].steps.tolist() == [1, 2, 3]
    assert run.series["loss"].values.tolist() == [0.1, -math.inf, 0.3]
    assert run.series["reward"].values.tolist() == [0.25, 0.5, 0.75]
    assert np.isnan(run.series["kl"].values[0])
    assert np.isnan(run.series["grad_norm"].values[1])
    assert run.series["grad_norm"].values[2] == 1e-6
    assert run.series["completions/mean_length"].values.tolist() == [90.5, 91, 92]
    assert run.series["eval_loss"].steps.tolist() == [2]
    assert run.identity["summary"]["train_runtime"] == 12.5
    assert "train_loss" not in run.series
    assert "odd" not in run.series
    assert not run.skipped


def test_several_dicts_on_one_line(written: Written) -> None:
    run = open_run(written("{'loss': 0.1, 'step': 5}{'loss': 0.2, 'step': 6} done {'loss': 0.3, 'step': 7}\n"))
    assert run.series["loss"].steps.tolist() == [5, 6, 7]


def test_a_step_out_of_all_steps(written: Written) -> None:
    run = open_run(written("{'loss': 0.1, 'global_step/max_steps': '5/3766', 'elapsed_time': '1m 29s'}\n"))
    assert run.series["loss"].steps.tolist() == [5]
    assert run.skipped == {NO_NUMBER: 1}


def test_a_torn_dict_line_is_counted(written: Written) -> None:
    run = open_run(written("{'loss': 0.1, 'epoch': 0.1}\n{'loss': 0.2, 'epo\n{'loss': 0.3, 'epoch': 0.3}\n"))
    assert run.series["loss"].values.tolist() == [0.1, 0.3]
    assert run.skipped == {"torn or damaged lines": 1}


def test_verl_lines(written: Written) -> None:
    content = "checkpoint folder: step_0\n" + "".join(VERL.replace("{step}", str(step)) for step in (1, 2, 3))
    run = open_run(written(content + "Training Progress:  3%| 3/100\n"))
    assert run.identity["source"]["format"] == "console log (verl lines)"
    assert run.series["entropy"].steps.tolist() == [1, 2, 3]
    assert run.series["entropy"].values.tolist() == [0.31, 0.32, 0.33]
    assert run.series["loss"].values.tolist() == [-0.01, -0.02, -0.03]
    assert run.series["reward"].values.tolist() == [1.5, 2.5, 3.5]
    assert run.series["kl"].values.tolist() == [0.001] * 3
    assert run.series["learning_rate"].values.tolist() == [1e-6] * 3
    assert np.isnan(run.series["grad_norm"].values).all()
    assert run.series["val-core/openai/gsm8k/acc/mean@1"].values.tolist() == [0.25] * 3
    assert run.series["critic/rewards/mean"].values.tolist() == [0.1] * 3
    assert not run.skipped


def test_several_verl_records_on_one_line(written: Written) -> None:
    run = open_run(written("step:1 - actor/entropy:0.5 - x:1 step:2 - actor/entropy:0.4 - x:2\n"))
    assert run.series["entropy"].values.tolist() == [0.5, 0.4]
    assert run.series["x"].steps.tolist() == [1, 2]


def test_verl_lines_after_a_resume(written: Written) -> None:
    run = open_run(written("".join(VERL.replace("{step}", str(step)) for step in (1, 2, 3, 2))))
    assert run.series["reward"].steps.tolist() == [1, 2]
    assert run.skipped == {"rows superseded by a resume": 2}


@pytest.mark.parametrize(
    "line",
    [
        "step=12 loss=0.25 policy/entropy=1.5 kl=nan",
        "2026-01-02 10:11:12 INFO trainer: Step 12: loss: 0.25, policy/entropy: 1.5, kl: NaN",
        "[iter 12/500] loss = 0.25 | policy/entropy = 1.5 | kl = np.float64(nan)",
        "global_step=12, loss='0.25', policy/entropy=1.5e0, kl=None",
    ],
)
def test_key_value_lines(written: Written, line: str) -> None:
    run = open_run(written(f"starting at 10:00\n{line}\nno record here: 5\n"))
    assert run.series["loss"].steps.tolist() == [12]
    assert run.series["loss"].values.tolist() == [0.25]
    assert run.series["entropy"].values.tolist() == [1.5]
    assert np.isnan(run.series["kl"].values).all()


def test_json_objects_within_text(written: Written) -> None:
    lines = ["start", "more", "text", *(f'INFO metrics {{"step": {step}, "loss": 0.5}} ok' for step in (1, 2))]
    run = open_run(written("\n".join(lines)))
    assert run.series["loss"].steps.tolist() == [1, 2]
    assert run.identity["source"]["format"] == "console log (JSON objects)"


def test_records_of_another_shape_are_counted(written: Written) -> None:
    content = "".join(VERL.replace("{step}", str(step)) for step in (1, 2)) + "worker: step=2 queue=7\n" * 9
    run = open_run(written(content))
    assert run.series["entropy"].steps.tolist() == [1, 2]
    assert run.skipped == {OTHER: 9}


def test_a_line_printed_twice_counts_once(written: Written) -> None:
    line = "step=1 loss=0.5 kl=0.1\n"
    run = open_run(written(line + line))
    assert run.series["loss"].steps.tolist() == [1]
    assert run.skipped == {REPEATED: 1}


def test_text_without_a_record(written: Written) -> None:
    with pytest.raises(
        ReadError, match=r"is text.*Expected one of: .*trainer_state.json, .*JSONL metrics, CSV.*console log"
    ):
        open_run(written("A story.\nIt has steps, but no numbers.\n{'a': 1}\n"))
