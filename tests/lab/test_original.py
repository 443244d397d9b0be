from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("trl")

import foreshock
from foreshock.lab.arms import ARMS
from foreshock.lab.environment import Curriculum
from foreshock.lab.experiment import Experiment, build_trainer
from foreshock.lab.original import OriginalReference
from foreshock.lab.reference import TinyReference
from foreshock.run import read_run_directory

SMALL = Experiment(
    arm="refresh",
    steps=4,
    lookups_per_step=3,
    thoughts_per_step=1,
    curriculum=Curriculum(0.5, 0.5, 0, 1),
    reference=TinyReference(steps=150, batch_size=32, hidden_size=32),
)


def test_after_a_refresh_the_tail_restarts_against_the_current_reference_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(ARMS, "refresh", replace(ARMS["refresh"], refresh_every=2))
    trainer = build_trainer(SMALL, tmp_path)
    foreshock.watch(trainer, run_dir=tmp_path / "run", steps_per_block=1, write_report=False)
    trainer.add_callback(OriginalReference(trainer, tmp_path / "run" / "original", 1))
    trainer.train()
    current, original = read_run_directory(tmp_path / "run"), read_run_directory(tmp_path / "run" / "original")

    def largest(run):
        return [block.sketches["policy/ref"].quantile(1.0, "text_only").value for block in run.blocks]

    assert largest(original)[:2] == largest(current)[:2]
    assert largest(current)[2] < 1e-5 < largest(current)[1]
    assert largest(original)[2] > largest(original)[1]
    assert original.identity["status"] == "finished"
    assert original.series["reward"].values.tolist() == current.series["reward"].values.tolist()
