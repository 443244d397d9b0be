from __future__ import annotations

import math
from dataclasses import replace

import pytest

pytest.importorskip("trl")

import torch

from foreshock.lab.arms import ARMS
from foreshock.lab.environment import REDIRECT_SHARE, Curriculum
from foreshock.lab.experiment import Experiment, build_trainer
from foreshock.lab.reference import TinyReference

SMALL = Experiment(
    steps=3,
    lookups_per_step=3,
    thoughts_per_step=1,
    curriculum=Curriculum(0.5, 0.5, 0, 1),
    reference=TinyReference(steps=150, batch_size=32, hidden_size=32),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


def logged(trainer):
    return [row for row in trainer.state.log_history if "reward" in row]


def weights(trainer):
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


@pytest.mark.parametrize("arm", ARMS)
def test_each_arm_trains_through_trls_own_tool_path(arm, folder):
    trainer = build_trainer(replace(SMALL, arm=arm), folder)
    trainer.train()
    rows = logged(trainer)
    assert len(rows) == SMALL.steps
    assert all(math.isfinite(row["loss"]) and math.isfinite(row["kl"]) for row in rows)
    assert all(row["tools/call_frequency"] > 0 and row["tools/failure_frequency"] == 0 for row in rows)
    assert [row[REDIRECT_SHARE] for row in rows] == [0.5] * SMALL.steps


def test_the_same_experiment_on_one_thread_gives_the_same_bits(folder):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        runs = []
        for seed in (0, 0, 1):
            trainer = build_trainer(replace(SMALL, steps=2, seed=seed), folder)
            trainer.train()
            runs.append(weights(trainer))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
