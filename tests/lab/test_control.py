from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("trl")

import torch
from transformers import TrainerControl, TrainerState

from foreshock.lab.arms import Arm
from foreshock.lab.control import KLController, apply_arm, mask_beyond, penalty_beyond, post_tool_mask
from foreshock.lab.environment import Curriculum
from foreshock.lab.experiment import Experiment, build_trainer
from foreshock.lab.reference import TinyReference

SMALL = Experiment(
    steps=2,
    lookups_per_step=3,
    thoughts_per_step=1,
    curriculum=Curriculum(0.5, 0.5, 0, 1),
    reference=TinyReference(steps=150, batch_size=32, hidden_size=32),
)
LOG_RATIO = torch.tensor([[0.5, 1.5, -1.5, 1.5]])
POST_TOOL = torch.tensor([[True, True, True, False]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


def test_post_tool_starts_after_the_first_tool_result_and_leaves_results_and_padding_out():
    completion_mask = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0]])
    tool_mask = torch.tensor([[1, 1, 0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]])
    expected = torch.tensor([[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]]).bool()
    assert torch.equal(post_tool_mask(completion_mask, tool_mask), expected)


def test_the_penalty_has_the_gradient_of_what_exceeds_the_bound():
    log_ratio = LOG_RATIO.clone().requires_grad_()
    (log_ratio.abs() - 1.0).clamp(min=0)[POST_TOOL].sum().backward()
    advantages = penalty_beyond(1.0)(torch.tensor([[0.3]]), LOG_RATIO, POST_TOOL)
    assert torch.allclose(0.3 - advantages, log_ratio.grad)


def test_the_mask_takes_both_ends_of_every_slice():
    assert mask_beyond(1.0)(torch.tensor([[0.3]]), LOG_RATIO, POST_TOOL).tolist() == [[pytest.approx(0.3), 0, 0, 0]]


def losses(arm: Arm, folder):
    """Train two steps under an arm with a watcher put on after it; return the losses, inputs and log-probabilities."""
    trainer = build_trainer(SMALL, folder)
    apply_arm(trainer, arm)
    inner_loss, inner_log_probs = trainer._compute_loss, trainer._get_per_token_logps_and_entropies
    seen, found = [], []

    def log_probs_and_entropies(*args, **kwargs):
        result = inner_log_probs(*args, **kwargs)
        if result[0].requires_grad:
            found.append(result[0].detach())
        return result

    def compute_loss(model, inputs):
        loss = inner_loss(model, inputs)
        seen.append((loss.item(), inputs, found.pop()))
        return loss

    trainer._compute_loss, trainer._get_per_token_logps_and_entropies = compute_loss, log_probs_and_entropies
    trainer.train()
    return seen


@pytest.fixture(scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("arm", "change"),
    [
        (Arm("", tail_bound=0.01), lambda a, r, post: r.sign() * ((r.abs() > 0.01) & post)),
        (Arm("", masked_beyond=0.01), lambda a, r, post: a * (r.abs() > 0.01)),
    ],
)
def test_an_arm_changes_the_loss_by_its_term_alone_and_lets_others_watch(arm, change, folder, one_thread):
    plain, held = losses(Arm(""), folder), losses(arm, folder)
    # At step 1 the policy is its reference, r is zero, and both arms reach step 2 with the same bits.
    assert held[0][0] == plain[0][0]
    (plain_loss, _, _), (held_loss, inputs, policy) = plain[1], held[1]
    post = post_tool_mask(inputs["completion_mask"], inputs["tool_mask"])
    log_ratio = policy - inputs["ref_per_token_logps"]
    assert inputs["advantages"].dim() == 1
    term = change(inputs["advantages"].unsqueeze(1), log_ratio, post)
    mask = inputs["completion_mask"] * inputs["tool_mask"]
    expected = (term * mask).sum().item() / inputs["num_items_in_batch"].item()
    assert abs(expected) > 1e-5
    assert held_loss - plain_loss == pytest.approx(expected, rel=1e-3, abs=1e-7)


def test_frozen_post_tool_tokens_do_not_enter_the_loss(folder):
    trainer = build_trainer(SMALL, folder)
    masks = []
    trainer._compute_loss = lambda model, inputs: masks.append(inputs["tool_mask"])
    apply_arm(trainer, Arm("", post_tool_frozen=True))
    ones = torch.ones(1, 5, dtype=torch.long)
    trainer._compute_loss(None, {"completion_mask": ones, "tool_mask": torch.tensor([[1, 0, 1, 1, 0]])})
    assert masks[0].tolist() == [[1, 0, 0, 0, 0]]


def test_the_kl_weight_follows_the_mean_kl_within_two_per_cent_a_step(folder):
    trainer = build_trainer(replace(SMALL, beta=0.04), folder)
    controller = KLController(trainer, target=0.05)
    for kl, expected in (
        (0.05, 0.04),
        (0.5, 0.04 * 1.02),
        (0.0, 0.04 * 1.02 * 0.98),
        (0.055, 0.04 * 1.02 * 0.98 * 1.01),
    ):
        controller.on_log(trainer.args, TrainerState(), TrainerControl(), logs={"kl": kl})
        assert trainer.beta == pytest.approx(expected)
    controller.on_log(trainer.args, TrainerState(), TrainerControl(), logs={"train_runtime": 1.0})
    assert trainer.beta == pytest.approx(expected)
