"""What differs between the arms of the experiment: how the policy is held to its reference.

"Drift-aware" is our definition; the published account names the contrast with a fixed-policy baseline only. Here it is
a second KL term on the post-tool tokens alone, whose weight follows the tail of those tokens' log-ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from trl import GRPOTrainer


def post_tool_mask(completion_mask: torch.Tensor, tool_mask: torch.Tensor) -> torch.Tensor:
    """Return a bool (B, T) mask of the response tokens that stand after at least one tool-result token.

    TRL pads `tool_mask` with ones, so padding is told from a response by `completion_mask` alone.
    """
    tool_result = completion_mask.bool() & ~tool_mask.bool()
    response = completion_mask.bool() & tool_mask.bool()
    return response & (tool_result.cumsum(dim=1) > 0)


@dataclass
class TailWeight:
    """The weight λ of the post-tool KL term, driven by the 99th percentile of |r| over post-tool tokens.

    λ ← λ·(1 + 0.2·clip(p99/target − 1, ±0.5)), kept in [`low`, `high`].
    """

    value: float
    target: float
    low: float
    high: float

    def follow(self, p99: float) -> None:
        """Move the weight by one step; a step without post-tool tokens (NaN) leaves it as it is."""
        if not math.isnan(p99):
            error = min(0.5, max(-0.5, p99 / self.target - 1))
            self.value = min(self.high, max(self.low, self.value * (1 + 0.2 * error)))


def add_drift_aware_term(trainer: GRPOTrainer, weight: TailWeight) -> None:
    """Make the trainer's loss include λ · mean k3 of policy/ref over post-tool tokens; no extra forward pass.

    Two instance attributes are wrapped. They call what was there before, so other wrappers compose in any order.
    """
    seen: list[torch.Tensor] = []
    inner_loss: Callable[..., torch.Tensor] = trainer._compute_loss
    inner_logps: Callable[..., Any] = trainer._get_per_token_logps_and_entropies

    def logps_and_entropies(*args: Any, **kwargs: Any) -> Any:
        result = inner_logps(*args, **kwargs)
        if result[0].requires_grad:
            seen.append(result[0])
        return result

    def compute_loss(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        seen.clear()
        loss: torch.Tensor = inner_loss(model, inputs)
        if not seen or "tool_mask" not in inputs:
            return loss
        post = post_tool_mask(inputs["completion_mask"], inputs["tool_mask"])
        ref_minus_policy = inputs["ref_per_token_logps"] - seen.pop()
        k3 = torch.exp(ref_minus_policy) - ref_minus_policy - 1
        penalty = (k3 * post).sum() / post.sum().clamp(min=1)
        term: torch.Tensor = weight.value * penalty / trainer.current_gradient_accumulation_steps
        weight.follow(_p99_over_workers(trainer, ref_minus_policy.detach().abs()[post]))
        trainer._metrics["train"]["drift_aware/weight"].append(weight.value)
        return loss + term

    trainer._get_per_token_logps_and_entropies = logps_and_entropies
    trainer._compute_loss = compute_loss


def _p99_over_workers(trainer: GRPOTrainer, magnitudes: torch.Tensor) -> float:
    """Return the mean over workers of each worker's 99th percentile, NaN when no worker has post-tool tokens."""
    has_any = magnitudes.numel() > 0
    p99 = torch.quantile(magnitudes, 0.99) if has_any else torch.zeros(())
    totals = trainer.accelerator.reduce(torch.stack([p99.double(), torch.tensor(float(has_any)).double()]))
    return float(totals[0] / totals[1])
