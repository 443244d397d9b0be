from __future__ import annotations

import math
from dataclasses import replace

import pytest

pytest.importorskip("trl")

import torch

from foreshock.lab.arms import TailWeight, post_tool_mask
from foreshock.lab.environment import Curriculum
from foreshock.lab.experiment import Experiment, build_trainer
from foreshock.lab.reference import ReferenceConfig

SMALL = Experiment(
    steps=2,
    lookups_per_step=3,
    thoughts_per_step=1,
    curriculum=Curriculum(0.5, 0.5, 0, 1),
    reference=ReferenceConfig(steps=150, batch_size=32, hidden_size=32),
)


def test_post_tool_starts_after_the_first_tool_result_and_leaves_results_and_padding_out():
    completion_mask = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0]])
    tool_mask = torch.tensor([[1, 1, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]])
    expected = torch.tensor([[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]]).bool()
    assert torch.equal(post_tool_mask(completion_mask, tool_mask), expected)


def test_the_weight_follows_the_tail_within_its_bounds():
    weight = TailWeight(value=1.0, target=0.5, low=0.5, high=1.2)
    weight.follow(0.6)
    assert weight.value == pytest.approx(1 + 0.2 * 0.2)
    weight.follow(math.nan)
    assert weight.value == pytest.approx(1 + 0.2 * 0.2)
    for _ in range(5):
        weight.follow(100.0)
    assert weight.value == 1.2
    for _ in range(50):
        weight.follow(0.0)
    assert weight.value == 0.5


def watched_run(arm, folder):
    """Train with a wrapper put on after the arm's own, as a live monitor would; return what it saw step by step."""
    trainer = build_trainer(replace(SMALL, arm=arm), folder)
    inner_loss, inner_logps = trainer._compute_loss, trainer._get_per_token_logps_and_entropies
    seen, logps = [], []

    def logps_and_entropies(*args, **kwargs):
        result = inner_logps(*args, **kwargs)
        if result[0].requires_grad:
            logps.append(result[0].detach())
        return result

    def compute_loss(model, inputs):
        loss = inner_loss(model, inputs)
        seen.append((loss.item(), inputs, logps.pop()))
        assert not logps
        return loss

    trainer._compute_loss, trainer._get_per_token_logps_and_entropies = compute_loss, logps_and_entropies
    trainer.train()
    return seen


def test_drift_aware_adds_its_term_to_the_plain_loss_and_lets_others_watch(tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        plain, aware = watched_run("fixed", tmp_path), watched_run("drift_aware", tmp_path)
    finally:
        torch.set_num_threads(threads)
    # At step 1 the policy is its reference: k3 and its gradient are zero, so both arms reach step 2 with the same bits.
    assert aware[0][0] == plain[0][0]
    (plain_loss, _, _), (aware_loss, inputs, logps) = plain[1], aware[1]
    post = post_tool_mask(inputs["completion_mask"], inputs["tool_mask"])
    r = (logps - inputs["ref_per_token_logps"])[post]
    k3 = (torch.exp(-r) + r - 1).mean().item()
    assert k3 > 0
    weight_at_step_2 = 0.1 * (1 - 0.2 * 0.5)  # step 1 had no tail at all: the weight fell by the largest move
    assert aware_loss - plain_loss == pytest.approx(weight_at_step_2 * k3, rel=1e-3, abs=1e-7)
