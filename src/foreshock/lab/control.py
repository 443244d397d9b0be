"""What an arm does to the trainer: the control of its loss, of its KL weight and of its reference.

Only instance attributes of the trainer are wrapped. They call what was there before, so other wrappers, such as the
watch, compose with them in any order; the watch sees the micro-batch as it was before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer

from foreshock.lab.arms import Arm

Reshape = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""From advantages, log-ratios policy/ref in nats and the post-tool mask, all (B, T), to new advantages (B, T)."""


def apply_arm(trainer: GRPOTrainer, arm: Arm) -> None:
    """Put the controls of an arm on a constructed trainer. What the tool does is not among them."""
    if arm.post_tool_frozen:
        freeze_post_tool(trainer)
    if arm.tail_bound is not None:
        reshape_advantages(trainer, penalty_beyond(arm.tail_bound))
    if arm.masked_beyond is not None:
        reshape_advantages(trainer, mask_beyond(arm.masked_beyond))
    if arm.kl_target is not None:
        trainer.add_callback(KLController(trainer, arm.kl_target))


def post_tool_mask(completion_mask: torch.Tensor, tool_mask: torch.Tensor) -> torch.Tensor:
    """Return a bool (B, T) mask of the response tokens that stand after at least one tool-result token.

    TRL pads `tool_mask` with ones, so padding is told from a response by `completion_mask` alone.
    """
    tool_result = completion_mask.bool() & ~tool_mask.bool()
    response = completion_mask.bool() & tool_mask.bool()
    return response & (tool_result.cumsum(dim=1) > 0)


def penalty_beyond(bound: float) -> Reshape:
    """Add max(0, |r| − bound) to the loss of every post-tool token.

    The gradient of the term is that of an advantage lowered by 1 above the bound, and raised by 1 below minus the
    bound. Rewards are at most 1 here, so no advantage can push a token further than the bound.
    """

    def reshape(advantages: torch.Tensor, log_ratio: torch.Tensor, post_tool: torch.Tensor) -> torch.Tensor:
        return advantages - log_ratio.sign() * ((log_ratio.abs() > bound) & post_tool)

    return reshape


def mask_beyond(bound: float) -> Reshape:
    """Take the policy gradient from tokens whose |r| exceeds the bound; their KL term stays."""

    def reshape(advantages: torch.Tensor, log_ratio: torch.Tensor, post_tool: torch.Tensor) -> torch.Tensor:
        return advantages * (log_ratio.abs() <= bound)

    return reshape


def reshape_advantages(trainer: GRPOTrainer, reshape: Reshape) -> None:
    """Change the advantages of each micro-batch between the policy's forward pass and the loss that it enters.

    A policy gradient is linear in the advantages, so a bounded penalty or a mask needs no forward pass of its own.
    """
    inner_loss: Callable[..., torch.Tensor] = trainer._compute_loss
    inner_log_probs: Callable[..., Any] = trainer._get_per_token_logps_and_entropies
    current: dict[str, Any] = {}

    def log_probs_and_entropies(*args: Any, **kwargs: Any) -> Any:
        result = inner_log_probs(*args, **kwargs)
        if current and result[0].requires_grad:
            log_ratio = result[0].detach() - current["ref_per_token_logps"]
            post_tool = post_tool_mask(current["completion_mask"], current["tool_mask"])
            current["advantages"] = reshape(current["advantages"].unsqueeze(1), log_ratio, post_tool)
        return result

    def compute_loss(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        current.update(inputs)
        try:
            return inner_loss(model, current)
        finally:
            current.clear()

    trainer._get_per_token_logps_and_entropies = log_probs_and_entropies
    trainer._compute_loss = compute_loss


def freeze_post_tool(trainer: GRPOTrainer) -> None:
    """Leave post-tool tokens out of the loss, as if the environment had written them."""
    inner: Callable[..., torch.Tensor] = trainer._compute_loss

    def compute_loss(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        post_tool = post_tool_mask(inputs["completion_mask"], inputs["tool_mask"])
        return inner(model, {**inputs, "tool_mask": inputs["tool_mask"] * ~post_tool})

    trainer._compute_loss = compute_loss


class KLController(TrainerCallback):
    """Steer the trainer's KL weight β so that the mean KL stays at a target (Ziegler et al., 2019, section 2.2).

    After each step β ← β · (1 + 0.1 · clip(KL/target − 1, ±0.2)).
    """

    def __init__(self, trainer: GRPOTrainer, target: float) -> None:
        self._trainer = trainer
        self._target = target

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any
    ) -> None:
        """Move the weight by one step."""
        if logs and "kl" in logs:
            error = min(0.2, max(-0.2, logs["kl"] / self._target - 1))
            self._trainer.beta *= 1 + 0.1 * error
