"""A run that was killed goes on from its checkpoint, in the same run directory."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("trl")

from transformers import TrainerCallback

from foreshock.lab.environment import Curriculum
from foreshock.lab.experiment import Experiment, build_trainer
from foreshock.lab.plan import RunPlan
from foreshock.lab.reference import TinyReference
from foreshock.lab.runs import train
from foreshock.run import read_run_directory

SMALL = Experiment(
    steps=5,
    lookups_per_step=3,
    thoughts_per_step=1,
    curriculum=Curriculum(0.5, 0.5, 0, 1),
    reference=TinyReference(steps=150, batch_size=32, hidden_size=32),
    steps_per_checkpoint=2,
)


class KilledAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


def sessions(plan):
    return json.loads((plan.run_dir / "run.json").read_text())["sessions"]


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path):
    plan = RunPlan("tiny", "fixed", 0, SMALL.steps, tmp_path / "run", tmp_path)
    trainer = build_trainer(SMALL, tmp_path)
    trainer.add_callback(KilledAt(3))
    with pytest.raises(KeyboardInterrupt):
        train(trainer, plan, write_report=False, resume=True)
    train(build_trainer(SMALL, tmp_path), plan, write_report=False, resume=True)
    assert [session["start_step"] for session in sessions(plan)] == [0, 2]
    run = read_run_directory(plan.run_dir)
    assert run.series["reward"].steps.tolist() == [1, 2, 3, 4, 5]
    assert run.identity["status"] == "finished"


def test_a_checkpoint_of_a_run_whose_directory_is_gone_is_not_taken_up(tmp_path):
    plan = RunPlan("tiny", "fixed", 0, SMALL.steps, tmp_path / "run", tmp_path)
    train(build_trainer(SMALL, tmp_path), plan, write_report=False)
    again = RunPlan("tiny", "fixed", 0, SMALL.steps, tmp_path / "again", tmp_path)
    train(build_trainer(SMALL, tmp_path), again, write_report=False, resume=True)
    assert [session["start_step"] for session in sessions(again)] == [0]
