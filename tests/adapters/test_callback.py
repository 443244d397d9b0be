"""The watch as a whole: attaching, resuming, failing, stopping, and trainers that it knows only in part."""

import json
import logging
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PrinterCallback
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

import foreshock
from foreshock.errors import AlreadyWatched, InputError, RunDirectoryError, UnsupportedTrainer
from foreshock.lab.vocabulary import build_tokenizer
from foreshock.run import read_findings, read_run_directory

COMMON = {
    "max_steps": 3, "per_device_train_batch_size": 2, "logging_steps": 1, "report_to": "none", "save_strategy": "no",
    "use_cpu": True, "bf16": False, "disable_tqdm": True, "gradient_checkpointing": False,
}  # fmt: skip


def test_the_callback_attaches_itself(make_trainer, tmp_path):
    trainer = make_trainer(beta=0.05, callbacks=[foreshock.ForeshockCallback(tmp_path / "run")])
    trainer.train()
    assert read_run_directory(tmp_path / "run").blocks[0].sketches["policy/ref"].n("text_only") > 0


def test_without_a_comparator_it_says_what_to_set_and_records_scalars(make_trainer, tmp_path, capfd):
    trainer = make_trainer()
    watch = foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    assert "Set beta > 0, train with a PEFT adapter, or pass ref_model=" in run.notices["no-comparator"]
    assert "Set beta > 0" in capfd.readouterr().err.replace("\n", " ")
    assert watch.monitor.diagnosis.verdict == "cannot_judge"
    assert len(run.series["reward"]) == 3
    assert sum(block.total("response_tokens") for block in run.blocks) > 0


def test_the_identity_is_filled_in(make_trainer, reference, tmp_path):
    trainer = make_trainer(beta=0.05)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    identity = read_run_directory(tmp_path / "run").identity
    assert identity["trainer"] == "GRPOTrainer"
    assert identity["model"]["name"] == str(reference)
    assert identity["model"]["parameters"] == sum(p.numel() for p in trainer.model.parameters())
    assert identity["tokenizer"]["vocabulary"] == len(trainer.processing_class)
    assert identity["dataset"]["rows"] == 80
    assert identity["dataset"]["fingerprint"] == trainer.train_dataset._fingerprint
    assert identity["workers"]["world_size"] == 1
    assert identity["config"]["beta"] == 0.05
    assert identity["environment"]["packages"]["trl"]
    assert identity["status"] == "finished"
    assert not [key for key in identity["config"] if "token" in key and "hub" in key]


def test_a_resume_appends(make_trainer, tmp_path):
    options = {"beta": 0.05, "save_strategy": "steps", "save_steps": 2}
    trainer = make_trainer(**options, max_steps=5)
    foreshock.watch(trainer, run_dir=tmp_path / "run", steps_per_block=2)
    trainer.train()
    resumed = make_trainer(**options, max_steps=8)
    foreshock.watch(resumed, run_dir=tmp_path / "run", steps_per_block=2)
    resumed.train(resume_from_checkpoint=str(tmp_path / "trainer" / "checkpoint-4"))
    run = read_run_directory(tmp_path / "run")
    assert run.series["reward"].steps.tolist() == list(range(1, 9))
    assert [(block.first_step, block.last_step) for block in run.blocks] == [(1, 2), (3, 4), (5, 6), (7, 8)]
    assert run.skipped["superseded by a later session"] == 3  # row 5, its summary row folded in, and block 5
    assert len(resumed_blocks := (tmp_path / "run" / "blocks.jsonl").read_text().splitlines()) == 5, resumed_blocks


def test_an_error_inside_the_monitor_never_reaches_training(make_trainer, tmp_path, caplog, monkeypatch):
    trainer = make_trainer(beta=0.05, max_steps=4)
    watch = foreshock.watch(trainer, run_dir=tmp_path / "run", steps_per_block=2)

    def planted(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr("foreshock.sketch.device.DeviceSketch.update", planted)
    with caplog.at_level(logging.WARNING, logger="foreshock"):
        trainer.train()
    assert trainer.state.global_step == 4
    warnings = [record for record in caplog.records if record.name == "foreshock"]
    assert len(warnings) == 1
    assert "planted" in warnings[0].getMessage()
    run = read_run_directory(tmp_path / "run")
    assert watch.monitor.errors == 4
    assert "4 error(s) inside Foreshock" in run.notices["monitor-errors"]
    assert "4 error(s) inside Foreshock" in (tmp_path / "run" / "report.html").read_text()
    assert len(run.series["reward"]) == 4


def test_an_error_in_a_users_callback_never_reaches_training(make_trainer, rollout, tmp_path):
    trainer = make_trainer(tools=False, rollout_func=rollout, max_steps=4)

    def on_finding(finding):
        raise RuntimeError("of the user")

    watch = foreshock.watch(trainer, run_dir=tmp_path / "run", steps_per_block=1, on_finding=on_finding)
    trainer.train()
    assert trainer.state.global_step == 4
    assert watch.monitor.errors > 0


def test_findings_are_announced_and_training_stops_only_when_asked(make_trainer, rollout, tmp_path):
    seen = []
    trainer = make_trainer(tools=False, rollout_func=rollout, max_steps=6)
    foreshock.watch(trainer, run_dir=tmp_path / "a", steps_per_block=1, on_finding=seen.append)
    trainer.train()
    assert trainer.state.global_step == 6
    assert [finding.rule for finding in seen] == ["non-finite-values"]
    assert "rollout log-probabilities had the first non-finite value, at step 1" in seen[0].summary
    assert read_findings(tmp_path / "a")[0]["rule"] == "non-finite-values"

    trainer = make_trainer(tools=False, rollout_func=rollout, max_steps=6)
    foreshock.watch(trainer, run_dir=tmp_path / "b", steps_per_block=1, stop_on="warning")
    trainer.train()
    assert trainer.state.global_step < 6
    assert read_run_directory(tmp_path / "b").identity["status"] == "stopped early"


def test_a_users_rule_judges_the_run_and_may_fail(make_trainer, rollout, tmp_path):
    def failing(run):
        raise RuntimeError("of the user")

    (tmp_path / "team.toml").write_text(
        '[[rule]]\nid = "steps"\nmetric = "reward"\ncondition = ">= -9"\nwindow = 2\nmessage = "Rewards came."\n'
    )
    broken = SimpleNamespace(ID="broken", __doc__="Broken: always.", check=failing)
    trainer = make_trainer(tools=False, rollout_func=rollout, max_steps=4)
    watch = foreshock.watch(
        trainer, run_dir=tmp_path / "run", steps_per_block=1, rules=[tmp_path / "team.toml", broken]
    )
    trainer.train()
    assert "steps" in [finding.rule for finding in watch.monitor.diagnosis.findings]
    assert watch.monitor.diagnosis.skipped["rules that failed"] == 1
    assert watch.monitor.errors == 0


def test_an_sft_run_records_scalars_and_says_what_is_missing(reference, tmp_path):
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(reference),
        args=SFTConfig(output_dir=str(tmp_path / "sft"), max_length=32, **COMMON),
        train_dataset=Dataset.from_list([{"text": "what has e1 ? answer v1"}] * 16),
        processing_class=build_tokenizer(),
    )
    check_scalars_only(trainer, tmp_path)


def test_a_dpo_run_records_scalars_and_says_what_is_missing(reference, tmp_path):
    rows = [{"prompt": "what has e1 ?", "chosen": " answer v1", "rejected": " answer v2"}] * 16
    trainer = DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(reference),
        args=DPOConfig(output_dir=str(tmp_path / "dpo"), max_length=32, **COMMON),
        train_dataset=Dataset.from_list(rows),
        processing_class=build_tokenizer(),
    )
    check_scalars_only(trainer, tmp_path)


def check_scalars_only(trainer, tmp_path):
    trainer.remove_callback(PrinterCallback)
    watch = foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    assert trainer.state.global_step == 3
    assert len(run.series["loss"]) == 3
    assert type(trainer).__name__ in run.notices["no-token-records"]
    assert watch.monitor.errors == 0
    assert watch.monitor.diagnosis.verdict == "cannot_judge"
    assert (tmp_path / "run" / "report.html").stat().st_size > 1000


class HiddenLoss:
    """Mixed into a trainer whose loss shows no per-token log-probabilities, as fused kernels do."""

    def _compute_loss(self, model, inputs):
        logits = model(input_ids=inputs["prompt_ids"], attention_mask=inputs["prompt_mask"]).logits
        return logits.float().pow(2).mean()


def test_a_loss_without_visible_log_probs_is_named(make_trainer, tmp_path):
    from trl import GRPOTrainer

    hidden = type("FusedTrainer", (HiddenLoss, GRPOTrainer), {})
    trainer = make_trainer(trainer_class=hidden, beta=0.05)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    notice = read_run_directory(tmp_path / "run").notices["no-token-records"]
    assert "FusedTrainer" in notice
    assert "use_liger_kernel" in notice


def test_bad_use_is_one_clear_error_before_training(make_trainer, tmp_path):
    trainer = make_trainer()
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirectoryError, match="is a file"):
        foreshock.watch(trainer, run_dir=tmp_path / "file")
    with pytest.raises(RunDirectoryError, match="cannot be written to"):
        foreshock.watch(trainer, run_dir=tmp_path / "file" / "run")
    with pytest.raises(UnsupportedTrainer, match=r"got a builtins\.object.*expects a TRL trainer"):
        foreshock.watch(object(), run_dir=tmp_path / "run")
    with pytest.raises(InputError, match="steps_per_block is 0"):
        foreshock.watch(trainer, run_dir=tmp_path / "run", steps_per_block=0)
    with pytest.raises(InputError, match="stop_on is 'note'"):
        foreshock.watch(trainer, run_dir=tmp_path / "run", stop_on="note")
    with pytest.raises(InputError, match="slice_fn and slices belong together"):
        foreshock.watch(trainer, run_dir=tmp_path / "run", slices=("a",))
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    with pytest.raises(AlreadyWatched, match="has a watch already"):
        foreshock.watch(trainer, run_dir=tmp_path / "other")


def test_two_callbacks_on_one_trainer_are_refused(make_trainer, tmp_path):
    callbacks = [foreshock.ForeshockCallback(tmp_path / "a"), foreshock.ForeshockCallback(tmp_path / "b")]
    trainer = make_trainer(callbacks=callbacks)
    with pytest.raises(AlreadyWatched, match="has a watch already"):
        trainer.train()
    assert trainer.state.global_step == 0


def test_a_reference_of_another_vocabulary_is_refused(make_trainer, tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    other = LlamaForCausalLM(
        LlamaConfig(vocab_size=7, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    )
    with pytest.raises(InputError, match="vocabulary of 7 tokens"):
        foreshock.watch(make_trainer(), run_dir=tmp_path / "run", ref_model=other)


def test_a_slice_function_that_fails_costs_only_its_own_slices(make_trainer, tmp_path):
    def failing(inputs):
        raise RuntimeError("of the user")

    trainer = make_trainer(beta=0.05)
    watch = foreshock.watch(trainer, run_dir=tmp_path / "run", slice_fn=failing, slices=("mine",))
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    assert run.blocks[0].sketches["policy/ref"].n("text_only") > 0
    assert run.blocks[0].sketches["policy/ref"].n("mine") == 0
    assert "slice_fn failed and its slices are left out: RuntimeError: of the user" in run.notices["slice-fn"]
    assert watch.monitor.errors == 0


def test_a_slice_function_of_the_wrong_shape_is_named(make_trainer, tmp_path):
    trainer = make_trainer(beta=0.05)
    foreshock.watch(trainer, run_dir=tmp_path / "run", slice_fn=lambda inputs: inputs["advantages"], slices=("mine",))
    trainer.train()
    assert "expected integers of shape" in read_run_directory(tmp_path / "run").notices["slice-fn"]


def test_a_run_that_was_stopped_can_be_resumed(make_trainer, rollout, tmp_path):
    options = {"tools": False, "rollout_func": rollout, "save_strategy": "steps", "save_steps": 1}
    trainer = make_trainer(**options, max_steps=6)
    foreshock.watch(trainer, run_dir=tmp_path / "run", steps_per_block=1, stop_on="warning")
    trainer.train()
    stopped = trainer.state.global_step
    assert stopped < 6
    resumed = make_trainer(**options, max_steps=6)
    foreshock.watch(resumed, run_dir=tmp_path / "run", steps_per_block=1, stop_on="warning")
    resumed.train(resume_from_checkpoint=str(tmp_path / "trainer" / f"checkpoint-{stopped}"))
    assert resumed.state.global_step == 6
    assert len(read_findings(tmp_path / "run")) == 1


def test_a_callback_watches_one_trainer_only(make_trainer, tmp_path):
    callback = foreshock.ForeshockCallback(tmp_path / "run")
    make_trainer(beta=0.05, callbacks=[callback]).train()
    with pytest.raises(AlreadyWatched, match="watches another trainer"):
        make_trainer(beta=0.05, callbacks=[callback]).train()


def test_what_is_logged_after_training_is_recorded(make_trainer, tmp_path):
    trainer = make_trainer(beta=0.05)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    trainer.log({"eval_reward": 0.25})
    assert read_run_directory(tmp_path / "run").series["eval_reward"].values.tolist() == [0.25]


def test_training_twice_makes_two_sessions(make_trainer, tmp_path):
    trainer = make_trainer(beta=0.05)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    trainer.train()
    trainer.train()
    run = read_run_directory(tmp_path / "run")
    assert len(json.loads((tmp_path / "run" / "run.json").read_text())["sessions"]) == 2
    assert "holds an earlier run" in run.notices["earlier-run"]
    assert run.series["reward"].steps.tolist() == [1, 2, 3]


def test_a_monitor_that_cannot_start_leaves_training_alone(make_trainer, tmp_path, monkeypatch, caplog):
    def planted(*args, **kwargs):
        raise RuntimeError("planted")

    monkeypatch.setattr("foreshock.adapters.trl.callback.Monitor", planted)
    trainer = make_trainer(beta=0.05)
    foreshock.watch(trainer, run_dir=tmp_path / "run")
    with caplog.at_level(logging.WARNING, logger="foreshock"):
        trainer.train()
    assert trainer.state.global_step == 3
    assert "training goes on unwatched: planted" in caplog.text


@pytest.mark.parametrize("watched", [False, True])
def test_the_probe_draws_no_random_number_of_training(make_trainer, tmp_path, watched, request):
    trainer = make_trainer(peft=True, max_steps=3)
    for module in trainer.model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.1
    if watched:
        foreshock.watch(trainer, run_dir=tmp_path / "run")
    torch.manual_seed(0)
    trainer.train()
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in trainer.model.parameters()])
    seen = request.config.stash.setdefault(WEIGHTS, {})
    seen[watched] = weights
    if len(seen) == 2:
        assert torch.equal(seen[False], seen[True])


WEIGHTS = pytest.StashKey()

TRAINING = """
import sys
from pathlib import Path
import foreshock
from foreshock.lab.experiment import Experiment, build_trainer
from foreshock.lab.reference import TinyReference
folder = Path(sys.argv[1])
trainer = build_trainer(Experiment(steps=500, reference=TinyReference(steps=20, batch_size=8)), folder)
foreshock.watch(trainer, run_dir=folder / "run", steps_per_block=3)
trainer.train()
"""


def test_a_killed_training_leaves_everything_written_before_readable(tmp_path):
    command = [sys.executable, "-c", TRAINING, str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < 8:
        assert process.poll() is None, "the training ended by itself"
        time.sleep(0.1)
    written = metrics.read_bytes().count(b"\n")
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = read_run_directory(tmp_path / "run")
    assert len(run.series["reward"]) >= written
    assert [block.last_step for block in run.blocks][:2] == [3, 6]
    assert run.blocks[0].sketches["policy/ref"].n("text_only") > 0
    assert run.identity["status"] == "running"


CRASHING = TRAINING.replace(
    "trainer.train()",
    """
original = trainer.reward_funcs[0]
def grade(**arguments):
    if trainer.state.global_step == 4:
        raise RuntimeError("of the grader")
    return original(**arguments)
trainer.reward_funcs[0] = grade
trainer.train()
""",
)


def test_a_crash_keeps_what_was_gathered_and_leaves_a_report(tmp_path):
    done = subprocess.run([sys.executable, "-c", CRASHING, str(tmp_path)], capture_output=True, text=True)
    assert "RuntimeError: of the grader" in done.stderr
    run = read_run_directory(tmp_path / "run")
    assert run.identity["status"] == "interrupted"
    assert [(block.first_step, block.last_step) for block in run.blocks] == [(1, 3), (4, 4)]
    assert (tmp_path / "run" / "report.html").exists()
    assert "CANNOT JUDGE" in done.stderr
